//go:build linux

package main

import (
	"testing"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
)

// The processor's time of a request tells on any machine, the requests a second only on
// a calm one; a little of either is noise.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name               string
		work, rate, others float64 // of this checkout, and of the machine
		fails              bool
	}{
		{"the same", 1, 1, 0, false},
		{"faster", 0.8, 1.2, 0, false},
		{"more work", 1.1, 1, 50, true},
		{"a little more work", 1.02, 1, 0, false},
		{"slower", 1, 0.9, 5, true},
		{"slower on a busy machine", 1, 0.9, 50, false},
		{"a little slower", 1, 0.98, 5, false},
	} {
		now := figures.Case{Contestant: caddyMemory, Clients: 32}
		before := now
		before.Setting = beforeSetting
		var s figures.Set
		for run := range leastPairs {
			noise := 1 + 0.01*float64(run%3-1)
			s.Add(before, run+1, figures.Values{figures.Work: 50, figures.Rate: 10_000, figures.Others: c.others})
			s.Add(now, run+1, figures.Values{figures.Work: 50 * c.work * noise, figures.Rate: 10_000 * c.rate * noise, figures.Others: c.others})
		}
		if err := judge(s, "HEAD~1"); (err != nil) != c.fails {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

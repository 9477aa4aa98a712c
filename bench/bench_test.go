package main

import (
	"testing"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
	"github.com/orderly-http/caddy-orderly/bench/internal/server"
)

// The processor time of a request decides; a little of it is noise.
func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		name  string
		now   float64 // times as much as before
		fails bool
	}{
		{"the same", 1, false},
		{"less work", 0.8, false},
		{"a little more work", 1.02, false},
		{"more work", 1.1, true},
	} {
		now := figures.Case{Who: caddyMemory, Clients: plottedClients}
		before := now
		before.Who += suffixBefore
		s := new(figures.Set)
		for round := range 15 {
			noise := 1 + 0.01*float64(round%3-1)
			s.Add(before, figures.Values{work: 50})
			s.Add(now, figures.Values{work: 50 * c.now * noise})
		}
		if err := verdict(s, "respond", "HEAD~1"); (err != nil) != c.fails {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// The servers of the comparisons start, serve, and let in one at a time.
func TestContest(t *testing.T) {
	backend, err := server.StartBackend(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{home: t.TempDir(), set: new(figures.Set)}
	if b.caddy, err = buildCaddy(t.Context(), "..", b.home); err != nil {
		t.Fatal(err)
	}
	c := contest{bench: b, upstream: backend, contestants: proxies(b.caddy, backend.Addr), seconds: 1}
	if err := c.compare(t.Context(), 1, each([]int{8}, 0)); err != nil {
		t.Fatal(err)
	}
	for _, row := range b.set.Rows {
		for _, figure := range []string{rate, wait, late, work} {
			if len(row.Values[figure]) != 1 || row.Values[figure][0] <= 0 {
				t.Errorf("%s: %s: %v", row.Who, figure, row.Values[figure])
			}
		}
	}
	if len(b.set.Rows) != len(c.contestants) {
		t.Errorf("%d of %d contestants were measured", len(b.set.Rows), len(c.contestants))
	}
}

package telemetry

import (
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/agelist"
)

// Bug: Retry-After took no account of concurrency: it said 18 s where a place was free in
// 4. Nor did it take account of the current holds: with 21 ahead, it began at 1.
func TestRetryAfter(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name        string
		ended       []time.Duration // holds
		ages        []time.Duration // of holds that go on
		concurrency int
		readers     bool
		position    int
		want        string
	}{
		{"nobody ahead, nothing known", nil, nil, 1, false, 0, "1"},
		{"21 ahead, nothing known", nil, []time.Duration{s / 100}, 1, false, 21, "22"},
		{"21 ahead, the first goes on", nil, []time.Duration{3 * s}, 1, false, 21, "66"},
		{"the first that ends is the mean", []time.Duration{4 * s}, nil, 1, false, 2, "12"},
		{"an eighth of each later one", []time.Duration{4 * s, 12 * s}, nil, 1, false, 0, "5"},
		{"four places", []time.Duration{2 * s}, nil, 4, false, 7, "4"},
		{"holds that go on, shorter than usual", []time.Duration{2 * s}, []time.Duration{s, s}, 2, false, 3, "4"},
		{"a hold that goes on for longer", []time.Duration{2 * s}, []time.Duration{10 * s}, 1, false, 3, "40"},
		{"one of two places is stuck", []time.Duration{2 * s}, []time.Duration{20 * time.Minute, s}, 2, false, 3, "8"},
		{"the only place is stuck", []time.Duration{s}, []time.Duration{20 * time.Minute}, 1, false, 1, "120"},
		{"very quick", []time.Duration{1}, nil, 1, false, 100, "1"},
		{"very slow", []time.Duration{24 * time.Hour}, nil, 1, false, 1 << 40, "120"},
		{"holds of no time at all", []time.Duration{0, 0}, nil, 1, false, 100, "1"},
		{"behind five readers", []time.Duration{2 * s}, []time.Duration{s, s, s, s, s}, 1, true, 9, "4"},
		{"behind a writer", []time.Duration{2 * s}, []time.Duration{s}, 1, true, 9, "20"},
		{"readers, all inside elsewhere", []time.Duration{2 * s}, nil, 1, true, 9, "20"},
	} {
		r, now := NewStats("a_"), time.Now()
		for _, hold := range c.ended {
			r.hold.add(hold)
		}
		for _, age := range c.ages {
			r.Holds.Insert(&agelist.Entry{Queue: "a_"}, now.Add(-age))
		}
		r.Holds.Insert(&agelist.Entry{Queue: "b_"}, now.Add(-time.Hour)) // does not count
		if c.readers {
			c.concurrency = 0
		}
		if got := r.RetryAfter("a_", c.position, c.concurrency, now); got != c.want {
			t.Errorf("%s: %s; expected %s", c.name, got, c.want)
		}
	}
}

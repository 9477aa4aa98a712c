package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// report is what a run has shown.
type report struct {
	config
	took      time.Duration
	handovers int
	overlaps  int
	inverted  int
	problems  []string
	examples  []string
	timeline  []string // of the faults around the examples
	begun     uint64
	cutOff    uint64
	counts    [outcomes]uint64
	recovered []time.Duration
	faults    string
}

// recoveryLimit is the longest time after kill -9 of the holder.
const recoveryLimit = 250 * time.Millisecond

func (h *harness) report(took time.Duration) *report {
	h.mu.Lock()
	problems := slices.Clone(h.problems)
	h.mu.Unlock()
	o := h.oracle
	slices.Sort(o.recovered)
	return &report{
		config:    h.config,
		took:      took,
		handovers: o.entries,
		overlaps:  o.overlaps,
		inverted:  o.inverted,
		problems:  problems,
		examples:  o.examples,
		timeline:  h.timeline.around(o.shown, o.start),
		begun:     h.begun,
		cutOff:    h.cutOff,
		counts:    h.counts,
		recovered: o.recovered,
		faults:    h.faultsThrown(),
	}
}

// lost is how many arrivals came to no proper end.
func (r *report) lost() int { return len(r.problems) + int(r.counts[starved]) }

// holds reports whether all was as it must be, quick or slow.
func (r *report) holds() bool { return r.overlaps == 0 && r.inverted == 0 && r.lost() == 0 }

func (r *report) ok() bool { return r.holds() && r.worst() <= recoveryLimit }

func (r *report) worst() time.Duration {
	if len(r.recovered) == 0 {
		return 0
	}
	return r.recovered[len(r.recovered)-1]
}

func (r *report) quantile(q float64) time.Duration {
	return r.recovered[int(q*float64(len(r.recovered)-1))]
}

func (r *report) String() string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s "+format+"\n", append([]any{name}, args...)...)
	}
	line("seed", "%d", r.seed)
	line("engine", "%s", r.engine)
	line("processes", "%d with %d goroutines each", r.procs, r.goroutines)
	line("faults", "%s", r.faults)
	line("time", "%v", r.took.Round(time.Millisecond))
	line("hand-overs", "%d", r.handovers)
	line("hand-overs/s", "%.0f", float64(r.handovers)/r.took.Seconds())
	line("overlaps", "%d", r.overlaps)
	line("inversions", "%d", r.inverted)
	line("lost", "%d", r.lost())
	line("arrivals", "%d, of which cut off by kill -9: %d", r.begun, r.cutOff)
	for o, n := range r.counts {
		line("", "%s: %d", outcomeNames[o], n)
	}
	if n := len(r.recovered); n > 0 {
		line("recoveries", "%d after kill -9 of the holder: median %v, 95th percentile %v, worst %v",
			n, round(r.quantile(0.5)), round(r.quantile(0.95)), round(r.worst()))
	}
	for _, e := range slices.Concat(r.examples, r.timeline, r.problems) {
		line("", "%s", e)
	}
	verdict := "BROKEN"
	switch {
	case r.ok():
		verdict = "holds"
	case r.holds():
		verdict = fmt.Sprintf("holds, but took more than %v to recover", recoveryLimit)
	}
	line("verdict", "%s", verdict)
	return b.String()
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

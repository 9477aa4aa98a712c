package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// report is the result of a run.
type report struct {
	config
	took      time.Duration
	handovers int
	found     findings
	pauses    pausesSeen
	problems  []string
	examples  []string
	timeline  []string // the faults around the examples
	begun     uint64
	cutOff    uint64
	counts    [outcomes]uint64
	recovered times
	faults    string
}

// recoveryLimit is the longest time until the next entry after kill -9 of the holder.
const recoveryLimit = 250 * time.Millisecond

func (h *harness) report(took time.Duration) *report {
	h.mu.Lock()
	problems := slices.Clone(h.problems)
	h.mu.Unlock()
	o := h.oracle
	for _, times := range [][]time.Duration{o.recovered, o.pauses.late, o.pauses.resumed, o.pauses.ended} {
		slices.Sort(times)
	}
	return &report{
		config:    h.config,
		took:      took,
		handovers: o.entries,
		found:     o.found,
		pauses:    o.pauses,
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

// lost is how many arrivals did not end properly.
func (r *report) lost() int { return len(r.problems) + int(r.counts[starved]) }

// holds reports whether there was no violation, even if something took too long.
func (r *report) holds() bool { return !r.found.any() && r.lost() == 0 }

func (r *report) ok() bool { return r.holds() && r.slow() == "" }

// slow says what took too long, or "".
func (r *report) slow() string {
	for _, took := range []struct {
		what  string
		times times
	}{
		{"to recover", r.recovered},
		{"to notice a pause", r.pauses.late},
		{"to continue after a queue was resumed", r.pauses.resumed},
		{"to continue after a pause ended by itself", r.pauses.ended},
	} {
		if took.times.worst() > recoveryLimit {
			return fmt.Sprintf("took more than %v %s", recoveryLimit, took.what)
		}
	}
	return ""
}

// times are durations of one kind, sorted.
type times []time.Duration

func (t times) worst() time.Duration { return t.quantile(1) }

func (t times) quantile(q float64) time.Duration {
	if len(t) == 0 {
		return 0
	}
	return t[int(q*float64(len(t)-1))]
}

func (t times) String() string {
	return fmt.Sprintf("median %v, 95th percentile %v, worst %v", round(t.quantile(0.5)), round(t.quantile(0.95)), round(t.worst()))
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
	line("overlaps", "%d", r.found.overlaps)
	line("inversions", "%d", r.found.inverted)
	line("intrusions", "%d, in %d pauses", r.found.intruded, len(r.pauses.spans))
	line("wronged", "%d, of %d superseded", r.found.wronged, r.counts[superseded])
	line("lost", "%d", r.lost())
	line("arrivals", "%d, of which cut off by kill -9: %d", r.begun, r.cutOff)
	for o, n := range r.counts {
		line("", "%s: %d", outcomeNames[o], n)
	}
	if n := len(r.recovered); n > 0 {
		line("recoveries", "%d after kill -9 of the holder: %v", n, r.recovered)
	}
	if len(r.pauses.spans) > 0 {
		line("late entries", "%d, through engines that had not noticed a pause: %v", len(r.pauses.late), r.pauses.late)
		line("resumptions", "%d after resuming a queue: %v", len(r.pauses.resumed), r.pauses.resumed)
		line("", "%d after a pause ended by itself: %v", len(r.pauses.ended), r.pauses.ended)
	}
	for _, e := range slices.Concat(r.examples, r.timeline, r.problems) {
		line("", "%s", e)
	}
	verdict := "BROKEN"
	switch {
	case r.ok():
		verdict = "holds"
	case r.holds():
		verdict = "holds, but " + r.slow()
	}
	line("verdict", "%s", verdict)
	return b.String()
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

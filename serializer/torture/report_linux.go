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
	judge    *judge
	took     time.Duration
	problems []string
	timeline []string // the faults around the examples
	begun    uint64
	cutOff   uint64
	counts   [outcomes]uint64
	faults   string
}

// recoveryLimit is the longest time until the next entry after kill -9 of the holder.
const recoveryLimit = 250 * time.Millisecond

func (h *harness) report(took time.Duration) *report {
	h.mu.Lock()
	problems := slices.Clone(h.problems)
	h.mu.Unlock()
	j := &h.oracle.judge
	for _, times := range []times{j.recovered, j.pauses.late, j.pauses.resumed, j.pauses.ended} {
		slices.Sort(times)
	}
	return &report{
		config:   h.config,
		judge:    j,
		took:     took,
		problems: problems,
		timeline: h.timeline.around(j.shown, j.start),
		begun:    h.begun,
		cutOff:   h.cutOff,
		counts:   h.counts,
		faults:   h.faultsThrown(),
	}
}

// lost is how many arrivals did not end properly.
func (r *report) lost() int { return len(r.problems) + int(r.counts[starved]) }

// holds reports whether there was no violation, even if something took too long.
func (r *report) holds() bool { return !r.judge.found.any() && r.lost() == 0 }

func (r *report) ok() bool { return r.holds() && r.slow() == "" }

// slow says what took too long, or "".
func (r *report) slow() string {
	for _, took := range []struct {
		what  string
		times times
	}{
		{"to recover", r.judge.recovered},
		{"to notice a pause", r.judge.pauses.late},
		{"to continue after a queue was resumed", r.judge.pauses.resumed},
		{"to continue after a pause ended by itself", r.judge.pauses.ended},
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
	line("hand-overs", "%d", r.judge.entries)
	line("hand-overs/s", "%.0f", float64(r.judge.entries)/r.took.Seconds())
	line("overlaps", "%d", r.judge.found.overlaps)
	line("inversions", "%d", r.judge.found.inverted)
	line("intrusions", "%d, in %d pauses", r.judge.found.intruded, len(r.judge.pauses.spans))
	line("wronged", "%d, of %d superseded", r.judge.found.wronged, r.counts[superseded])
	line("lost", "%d", r.lost())
	line("arrivals", "%d, of which cut off by kill -9: %d", r.begun, r.cutOff)
	for o, n := range r.counts {
		line("", "%s: %d", outcomeNames[o], n)
	}
	if n := len(r.judge.recovered); n > 0 {
		line("recoveries", "%d after kill -9 of the holder: %v", n, r.judge.recovered)
	}
	if len(r.judge.pauses.spans) > 0 {
		line("late entries", "%d, through engines that had not noticed a pause: %v", len(r.judge.pauses.late), r.judge.pauses.late)
		line("resumptions", "%d after resuming a queue: %v", len(r.judge.pauses.resumed), r.judge.pauses.resumed)
		line("", "%d after a pause ended by itself: %v", len(r.judge.pauses.ended), r.judge.pauses.ended)
	}
	for _, e := range slices.Concat(r.judge.examples, r.timeline, r.problems) {
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

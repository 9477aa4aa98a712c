package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// report is the result of a run.
type report struct {
	config
	*oracle
	took time.Duration
}

// recoveryLimit is the longest time until the next entry after kill -9 of the holder.
const recoveryLimit = 250 * time.Millisecond

func (h *harness) report(took time.Duration) *report {
	slices.Sort(h.oracle.recovered)
	return &report{h.config, h.oracle, took}
}

// holds reports whether nothing was found, even if something took too long.
func (r *report) holds() bool { return len(r.found) == 0 }

func (r *report) ok() bool {
	return r.holds() && r.recovered.quantile(1) <= recoveryLimit
}

// times are durations of one kind, sorted.
type times []time.Duration

func (t times) quantile(q float64) time.Duration {
	if len(t) == 0 {
		return 0
	}
	return t[int(q*float64(len(t)-1))].Round(10 * time.Microsecond)
}

func (r *report) String() string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s "+format+"\n", append([]any{name}, args...)...)
	}
	line("seed", "%d", r.Seed)
	line("store", "%s", r.Store)
	line("processes", "%d with %d goroutines each", r.procs, r.Goroutines)
	line("faults", "%v", r.thrown)
	line("time", "%v", r.took.Round(time.Millisecond))
	line("hand-overs", "%d, %.0f/s, %d with a slot", r.entries, float64(r.entries)/r.took.Seconds(), r.slotted)
	for _, kind := range kinds {
		line("found", "%s: %d", kind, r.found[kind])
	}
	for i, reason := range serializer.Reasons() {
		line("refused", "%s: %d", reason, r.refused[reasons+i])
	}
	line("recoveries", "%d after kill -9 of the holder: median %v, worst %v", len(r.recovered), r.recovered.quantile(0.5), r.recovered.quantile(1))
	line("pauses", "%d", r.pauses)
	if !r.holds() {
		for _, e := range slices.Concat(r.examples, r.spans.last(20, r.start)) {
			line("", "%s", e)
		}
	}
	verdict := "BROKEN"
	switch {
	case r.ok():
		verdict = "holds"
	case r.holds():
		verdict = fmt.Sprintf("holds, but took more than %v to continue", recoveryLimit)
	}
	line("verdict", "%s", verdict)
	return b.String()
}

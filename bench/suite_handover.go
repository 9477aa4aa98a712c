//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/library"
	"github.com/orderly-http/caddy-orderly/bench/internal/results"
)

// The suite handover passes a turn between two runners: both in one process, then
// each in its own. A byte through a pipe shows what it takes at least to wake
// another process.
var handoverSuite = suite{name: "handover", measure: measureHandover, tables: handoverTables, targets: handoverTargets}

var (
	withinProcess    = results.Subject{Name: "within one process"}
	betweenProcesses = results.Subject{Name: "between two processes"}
	throughPipe      = results.Subject{Name: "a byte through a pipe, between two processes"}
)

var (
	handOversMetric    = results.Metric{Name: "hand-overs"}
	handOverMetric     = results.Metric{Name: "hand-over", Unit: "µs"}
	lateHandOverMetric = results.Metric{Name: "hand-over, 99th percentile", Unit: "µs"}
)

func measureHandover(ctx context.Context, b *workbench) error {
	for run := range b.runs {
		for _, hold := range []time.Duration{0, 500 * time.Microsecond} {
			laps := pick(0, b.quick, 2000, 20_000)
			if hold > 0 {
				laps /= 10
			}
			pipe := results.Case{Subject: throughPipe, Processes: 2, Hold: hold}
			err := b.passes(ctx, pipe, run+1, b.shm, func(dir string) (library.Passes, error) {
				return library.Echo{Dir: dir, Hold: hold, Laps: laps}.Run(ctx)
			})
			if err != nil {
				return err
			}
			for _, place := range []string{b.shm, b.disk} {
				for i, subject := range []results.Subject{withinProcess, betweenProcesses} {
					c := results.Case{Subject: on(place, subject), Processes: i + 1, Hold: hold}
					err := b.passes(ctx, c, run+1, place, func(dir string) (library.Passes, error) {
						return library.Relay{Dir: dir, Processes: c.Processes, Runners: 2 / c.Processes, Hold: hold, Laps: laps}.Run(ctx)
					})
					if err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// passes measures hand-overs with a new directory.
func (b *workbench) passes(ctx context.Context, c results.Case, run int, place string, measure func(dir string) (library.Passes, error)) error {
	dir, err := fresh(place)
	if err != nil {
		return err
	}
	return b.round(ctx, c, run, func() error {
		p, err := measure(dir)
		if err != nil {
			return err
		}
		b.say("run %d, hold %5s: %-45s %v, 99th percentile %v, of %d", run, c.Hold, c, p.Median, p.Late, p.N)
		b.set.Add(c, run, handOversMetric, float64(p.N))
		if p.N > 0 { // else nobody waited for anybody, and there is no time to tell
			b.set.Add(c, run, handOverMetric, microseconds(p.Median))
			b.set.Add(c, run, lateHandOverMetric, microseconds(p.Late))
		}
		return nil
	})
}

func relayName(c results.Case) string {
	if c.FileSystem == "" {
		return c.Name
	}
	return c.Name + ", " + c.FileSystem
}

// within is the hand-over within one process that a case is compared with.
func within(c results.Case) results.Case {
	c.Name, c.Processes = withinProcess.Name, 1
	return c
}

func handoverTables(s results.Set) []table {
	pipe := func(c results.Case) results.Case { c.Subject, c.Processes = throughPipe, 2; return c }
	return []table{tabulate(s, "From one who leaves to the next, who waited for it, microseconds.", s.Cases(handOverMetric),
		words("hand-over", relayName), holdColumn("each stays"),
		spreadColumn("median", handOverMetric, itself),
		spreadColumn("99th percentile", lateHandOverMetric, itself),
		ratioColumn("of that within one process", handOverMetric, within),
		ratioColumn("of a byte's through a pipe", handOverMetric, pipe),
	)}
}

func handoverTargets(all map[string]results.Set) (ts []target) {
	s := all["handover"]
	between := func(c results.Case) bool { return c.Name == betweenProcesses.Name }
	for _, c := range slices.DeleteFunc(s.Cases(handOverMetric), func(c results.Case) bool { return !between(c) }) {
		under := fmt.Sprintf("hand-over %s, each stays %s", relayName(c), holdText(c.Hold))
		ts = append(ts,
			atMost(under+": median", 100, " µs", s.Summary(c, handOverMetric)),
			atMost(under+": 99th percentile", 1000, " µs", s.Summary(c, lateHandOverMetric)),
			atMost(under+": of that within one", 3, "", s.Ratio(c, within(c), handOverMetric)))
	}
	return ts
}

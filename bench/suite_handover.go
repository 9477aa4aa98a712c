//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
	"github.com/orderly-http/caddy-orderly/bench/internal/library"
	"github.com/orderly-http/caddy-orderly/bench/internal/machine"
)

// The suite handover passes a turn between two runners: both in one process, then each
// in its own. A byte through a pipe shows what it takes at least to wake another
// process.
var handoverSuite = suite{name: "handover", measure: measureHandover, tables: handoverTables, targets: handoverTargets}

const (
	withinProcess    = "within one process"
	betweenProcesses = "between two processes"
	throughPipe      = "a byte through a pipe, between two processes"
)

func measureHandover(ctx context.Context, b *bench) error {
	for _, held := range []time.Duration{0, 500 * time.Microsecond} {
		laps := pick(b.quick, 2000, 20_000)
		if held > 0 {
			laps /= 10
		}
		trials := []trial{passing(figures.Case{Contestant: throughPipe, Processes: 2, Hold: held}, b.shm, func(ctx context.Context, dir string) (figures.Values, error) {
			return library.Echo{Dir: dir, Hold: held, Laps: laps}.Run(ctx)
		})}
		for _, place := range []string{b.shm, b.disk} {
			for i, contestantName := range []string{withinProcess, betweenProcesses} {
				processes := i + 1
				c := figures.Case{Contestant: contestantName, FileSystem: machine.FileSystem(place), Processes: processes, Hold: held}
				trials = append(trials, passing(c, place, func(ctx context.Context, dir string) (figures.Values, error) {
					return library.Relay{Dir: dir, Processes: processes, Runners: 2 / processes, Hold: held, Laps: laps}.Run(ctx)
				}))
			}
		}
		if err := b.alternate(ctx, b.runs, trials...); err != nil {
			return err
		}
	}
	return nil
}

// passing is a trial in a new directory below place, if it needs one.
func passing(c figures.Case, place string, measure func(context.Context, string) (figures.Values, error)) trial {
	return trial{c, func(ctx context.Context) (figures.Values, error) {
		if place == "" {
			return measure(ctx, "")
		}
		dir, err := fresh(place)
		if err != nil {
			return nil, err
		}
		return measure(ctx, dir)
	}}
}

func relayName(c figures.Case) string {
	if c.FileSystem == "" {
		return c.Contestant
	}
	return c.Contestant + ", " + c.FileSystem
}

// within is the hand-over within one process that a case is compared with.
func within(c figures.Case) figures.Case {
	c.Contestant, c.Processes = withinProcess, 1
	return c
}

// piped is a byte through a pipe, which a case is compared with.
func piped(c figures.Case) figures.Case {
	c.Processes = 2
	return instead(throughPipe)(c)
}

func handoverTables(s figures.Set) []table {
	return []table{tabulate(s, "From a holder that leaves to the next waiter, microseconds.", inOrder(s, figures.HandOver, byConditions),
		label("hand-over", relayName), label("hold", hold),
		spread("median", figures.HandOver),
		spread("99th percentile", figures.HandOverLate),
		ratio("of that within one process", figures.HandOver, within),
		ratio("of a byte's through a pipe", figures.HandOver, piped))}
}

func handoverTargets(all figures.Set) (ts []target) {
	for _, c := range inOrder(all.Of("handover"), figures.HandOver, byConditions) {
		if c.Contestant != betweenProcesses {
			continue
		}
		under := fmt.Sprintf("hand-over %s, hold %s", relayName(c), hold(c))
		ts = append(ts,
			atMost(under+": median", 100, " µs", all.Summary(c, figures.HandOver)),
			atMost(under+": 99th percentile", 1000, " µs", all.Summary(c, figures.HandOverLate)),
			atMost(under+": of that within one", 3, "", all.Ratio(c, within(c), figures.HandOver)),
			atMost(under+": of a byte's through a pipe", 2, "", all.Ratio(c, piped(c), figures.HandOver)))
	}
	return ts
}

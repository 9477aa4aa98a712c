//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/library"
	"github.com/orderly-http/caddy-orderly/bench/internal/machine"
	"github.com/orderly-http/caddy-orderly/bench/internal/results"
)

// The figures of the library.
const (
	costMetric        = "cost of a turn"
	workMetric        = "processor's time of a turn"
	handOverMetric    = "hand-over"
	lateHandOver      = "hand-over, 99th percentile"
	memorySubject     = "memory"
	channelSubject    = "a list of channels"
	predecessorPrefix = "predecessor's algorithm on "
	filePrefix        = "file on "
)

// queue is an engine of the library, in a place.
type queue struct{ subject, engine, dir string }

func (b *workbench) queues() []queue {
	return []queue{
		{channelSubject, library.Channel, ""},
		{memorySubject, library.Memory, ""},
		{filePrefix + machine.FileSystem(b.shm), library.File, b.shm},
		{filePrefix + machine.FileSystem(b.disk), library.File, b.disk},
		{predecessorPrefix + machine.FileSystem(b.disk), library.Predecessor, b.disk},
	}
}

var waitingSuite = &suite{name: "waiting", measure: measureWaiting, tables: waitingTables, draw: drawWaiting}

// predecessorMost bounds how many wait for the predecessor's algorithm: each of
// them reads the whole directory 200 times a second.
const predecessorMost = 500

// measureWaiting finds out what a turn costs while others wait.
func measureWaiting(ctx context.Context, b *workbench, set *results.Set) error {
	lengths := []int{10, 50, 100, 500, 1000, 2000, 4000, 8000, 10_000}
	if b.quick {
		lengths = []int{10, 50, 1000, 8000}
	}
	for run := range b.runs {
		for _, length := range lengths {
			for _, q := range b.queues() {
				if q.engine == library.Predecessor && length > predecessorMost {
					continue
				}
				if err := b.turning(ctx, set, q, length, run+1); err != nil {
					return fmt.Errorf("%s with %d waiting: %w", q.subject, length, err)
				}
			}
		}
	}
	return nil
}

func (b *workbench) turning(ctx context.Context, set *results.Set, q queue, length, run int) error {
	c := results.Case{Subject: q.subject, Waiting: length}
	dir, err := b.place(q)
	if err != nil {
		return err
	}
	return b.round(ctx, set, c, run, func() error {
		task := library.Queueing{Engine: q.engine, Dir: dir, Waiting: length, Turns: 1 << 20, Limit: b.window}
		t, err := task.Run(ctx)
		if err != nil {
			return err
		}
		b.say("run %d, %5d waiting: %-32s %v a turn", run, length, q.subject, t.Cost)
		set.Add(c, run, costMetric, microseconds(t.Cost), "µs")
		set.Add(c, run, workMetric, microseconds(t.Work), "µs")
		set.Add(c, run, handOverMetric, microseconds(t.HandOver), "µs")
		set.Add(c, run, lateHandOver, microseconds(t.Late), "µs")
		return nil
	})
}

// place is a new directory for a queue that needs one.
func (b *workbench) place(q queue) (string, error) {
	if q.dir == "" {
		return "", nil
	}
	return fresh(q.dir)
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

var handoverSuite = &suite{name: "handover", measure: measureHandover, tables: handoverTables}

const (
	withinSubject  = "within one process"
	betweenSubject = "between two processes"
	pipeSubject    = "a byte through a pipe, between two processes"
	handOversCount = "hand-overs"
)

// measureHandover passes a turn between two runners: both in one process, then
// each in its own. A byte through a pipe shows what it takes at least to wake
// another process.
func measureHandover(ctx context.Context, b *workbench, set *results.Set) error {
	laps := map[time.Duration]int{0: 20_000, 500 * time.Microsecond: 2000}
	if b.quick {
		laps = map[time.Duration]int{0: 2000, 500 * time.Microsecond: 200}
	}
	for run := range b.runs {
		for _, hold := range []time.Duration{0, 500 * time.Microsecond} {
			if err := b.echo(ctx, set, library.Echo{Hold: hold, Laps: laps[hold]}, run+1); err != nil {
				return err
			}
			for _, dir := range []string{b.shm, b.disk} {
				for _, processes := range []int{1, 2} {
					relay := library.Relay{Processes: processes, Runners: 2 / processes, Hold: hold, Laps: laps[hold]}
					if err := b.relay(ctx, set, relay, dir, run+1); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

func (b *workbench) echo(ctx context.Context, set *results.Set, e library.Echo, run int) (err error) {
	if e.Dir, err = fresh(b.shm); err != nil {
		return err
	}
	c := results.Case{Subject: pipeSubject, Processes: 2, Hold: e.Hold}
	return b.round(ctx, set, c, run, func() error {
		p, err := e.Run(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", c.Subject, err)
		}
		b.addPasses(set, c, run, p)
		return nil
	})
}

// addPasses notes hand-overs.
func (b *workbench) addPasses(set *results.Set, c results.Case, run int, p library.Passes) {
	b.say("run %d, hold %5s: %-45s %v, 99th percentile %v, of %d", run, c.Hold, c.Subject, p.Median, p.Late, p.N)
	set.Add(c, run, handOversCount, float64(p.N), "")
	set.Add(c, run, handOverMetric, microseconds(p.Median), "µs")
	set.Add(c, run, lateHandOver, microseconds(p.Late), "µs")
}

func (b *workbench) relay(ctx context.Context, set *results.Set, r library.Relay, dir string, run int) (err error) {
	kind := withinSubject
	if r.Processes > 1 {
		kind = betweenSubject
	}
	c := results.Case{Subject: kind + ", " + machine.FileSystem(dir), Processes: r.Processes, Hold: r.Hold}
	if r.Dir, err = fresh(dir); err != nil {
		return err
	}
	return b.round(ctx, set, c, run, func() error {
		baton, err := r.Run(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", c.Subject, err)
		}
		p := baton.Within
		if r.Processes > 1 {
			p = baton.Between
		}
		b.addPasses(set, c, run, p)
		return nil
	})
}

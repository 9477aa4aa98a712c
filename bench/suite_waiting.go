//go:build linux

package main

import (
	"context"
	"math"
	"slices"

	"github.com/orderly-http/caddy-orderly/bench/internal/library"
	"github.com/orderly-http/caddy-orderly/bench/internal/plots"
	"github.com/orderly-http/caddy-orderly/bench/internal/results"
)

// The suite waiting finds out what a turn of the library costs while others
// wait.
var waitingSuite = suite{name: "waiting", measure: measureWaiting, tables: waitingTables, draw: drawWaiting, targets: waitingTargets}

// The queues of the library. Those in directories have a file system.
var (
	channelQueue     = results.Subject{Name: "a list of channels"}
	memoryQueue      = results.Subject{Name: "memory"}
	fileQueue        = results.Subject{Name: "file"}
	predecessorQueue = results.Subject{Name: "predecessor's algorithm"}
)

var (
	costMetric = results.Metric{Name: "cost of a turn", Unit: "µs"}
	workMetric = results.Metric{Name: "processor's time of a turn", Unit: "µs"}
)

// queue is an engine of the library, and where its directories lie, if it needs
// any.
type queue struct {
	results.Subject
	engine, dir string
}

func (b *workbench) queues() []queue {
	return []queue{
		{channelQueue, library.Channel, ""},
		{memoryQueue, library.Memory, ""},
		{on(b.shm, fileQueue), library.File, b.shm},
		{on(b.disk, fileQueue), library.File, b.disk},
		{on(b.disk, predecessorQueue), library.Predecessor, b.disk},
	}
}

// place is the engine in a new directory, if it needs one.
func (q queue) place() (e library.Engine, err error) {
	e.Engine = q.engine
	if q.dir != "" {
		e.Dir, err = fresh(q.dir)
	}
	return e, err
}

// predecessorMost bounds how many wait for the predecessor's algorithm: each of
// them reads the whole directory 200 times a second.
const predecessorMost = 500

func measureWaiting(ctx context.Context, b *workbench) error {
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
				if err := b.turning(ctx, q, results.Case{Subject: q.Subject, Waiting: length}, run+1); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (b *workbench) turning(ctx context.Context, q queue, c results.Case, run int) error {
	engine, err := q.place()
	if err != nil {
		return err
	}
	return b.round(ctx, c, run, func() error {
		t, err := library.Queueing{Engine: engine, Waiting: c.Waiting, Turns: 1 << 20, Limit: b.window}.Run(ctx)
		if err != nil {
			return err
		}
		b.say("run %d, %5d waiting: %-32s %v a turn", run, c.Waiting, c, t.Cost)
		b.set.Add(c, run, costMetric, microseconds(t.Cost))
		b.set.Add(c, run, workMetric, microseconds(t.Work))
		b.set.Add(c, run, handOverMetric, microseconds(t.HandOver))
		b.set.Add(c, run, lateHandOverMetric, microseconds(t.Late))
		return nil
	})
}

func waitingTables(s results.Set) []table {
	var cases []results.Case
	for _, subject := range s.Subjects(costMetric) {
		cases = append(cases, slices.DeleteFunc(s.Cases(costMetric), func(c results.Case) bool { return c.Subject != subject })...)
	}
	few := withWaiting(50)
	return []table{tabulate(s,
		"The library alone: a turn while so many wait, microseconds. A turn is a ticket made, the turn handed on and the ticket gone.", cases,
		subjectColumn("queue"), waitingColumn("waiting"),
		spreadColumn("cost of a turn", costMetric, itself), ratioColumn("of that with 50", costMetric, few),
		spreadColumn("processor's time", workMetric, itself), ratioColumn("of that with 50", workMetric, few),
		spreadColumn("from Leave to the next Enter, median", handOverMetric, itself), medianColumn("99th percentile", lateHandOverMetric),
	)}
}

func drawWaiting(s results.Set) drawing {
	against := func(m results.Metric, title string) plots.Panel {
		return panel(s, m, title, "waiting", func(c results.Case) int { return c.Waiting }, everything)
	}
	return plots.Figure{
		Title: "What a turn costs while others wait",
		Panels: [][]plots.Panel{{
			against(costMetric, "time of a turn, µs"),
			against(workMetric, "processor's time of a turn, µs"),
			against(handOverMetric, "from Leave to the next Enter, median, µs"),
		}},
	}
}

func waitingTargets(all map[string]results.Set) (ts []target) {
	s := all["waiting"]
	for _, subject := range s.Subjects(costMetric) {
		if subject.Name == fileQueue.Name || subject == memoryQueue {
			many, few := results.Case{Subject: subject, Waiting: 8000}, results.Case{Subject: subject, Waiting: 50}
			ts = append(ts,
				atMost("a turn with 8,000 waiting, of that with 50, "+subject.String(), 1.5, "", s.Ratio(many, few, costMetric)),
				atMost("the same, processor's time", 1.5, "", s.Ratio(many, few, workMetric)))
		}
	}
	return ts
}

// channelTarget compares a hand-over with that of a channel.
func channelTarget(s results.Set) target {
	file := s.Summary(results.Case{Subject: onDisk(s, handOverMetric, fileQueue), Waiting: 50}, handOverMetric)
	channel := s.Summary(results.Case{Subject: channelQueue, Waiting: 50}, handOverMetric)
	more := results.Summary{Median: file.Median - channel.Median, Min: file.Min - channel.Max, Max: file.Max - channel.Min, N: file.N}
	if math.IsNaN(more.Median) {
		more.N = 0
	}
	return atMost("hand-over in one process, file on a disk, more than a channel's, 50 waiting", 10, " µs", more)
}

//go:build linux

package main

import (
	"context"
	"math"
	"slices"

	"github.com/orderly-http/caddy-orderly/bench/internal/chart"
	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
	"github.com/orderly-http/caddy-orderly/bench/internal/library"
	"github.com/orderly-http/caddy-orderly/bench/internal/machine"
)

// The suite waiting finds out what a turn of the library costs while others wait.
var waitingSuite = suite{name: "waiting", measure: measureWaiting, tables: waitingTables, draw: drawWaiting, targets: waitingTargets}

// The queues of the library. Those in directories have a file system.
const (
	channelQueue     = "a list of channels"
	memoryQueue      = "memory"
	fileQueue        = "file"
	predecessorQueue = "predecessor's algorithm"
)

// queue is an engine of the library, and where its directories lie, if it needs any.
type queue struct {
	figures.Case
	engine, place string
}

func (b *bench) queues() []queue {
	on := func(contestantName, place string) figures.Case {
		return figures.Case{Contestant: contestantName, FileSystem: machine.FileSystem(place)}
	}
	return []queue{
		{figures.Case{Contestant: channelQueue}, library.Channel, ""},
		{figures.Case{Contestant: memoryQueue}, library.Memory, ""},
		{on(fileQueue, b.shm), library.File, b.shm},
		{on(fileQueue, b.disk), library.File, b.disk},
		{on(predecessorQueue, b.disk), library.Predecessor, b.disk},
	}
}

// trial measures the engine. The loop that makes the trial may change q afterwards:
// measure is given the case that the trial is for.
func (q queue) trial(measure func(context.Context, library.Engine, figures.Case) (figures.Values, error)) trial {
	return passing(q.Case, q.place, func(ctx context.Context, dir string) (figures.Values, error) {
		return measure(ctx, library.Engine{Engine: q.engine, Dir: dir}, q.Case)
	})
}

// predecessorMost bounds how many wait for the predecessor's algorithm: each of them
// reads the whole directory 200 times a second.
const predecessorMost = 500

func measureWaiting(ctx context.Context, b *bench) error {
	for _, length := range pick(b.quick, []int{10, 50, 1000, 8000}, []int{10, 50, 100, 500, 1000, 2000, 4000, 8000, 10_000}) {
		var trials []trial
		for _, q := range b.queues() {
			if q.engine == library.Predecessor && length > predecessorMost {
				continue
			}
			q.Waiting = length
			trials = append(trials, q.trial(func(ctx context.Context, e library.Engine, at figures.Case) (figures.Values, error) {
				return library.Queueing{Engine: e, Waiting: at.Waiting, Turns: 1 << 20, Limit: b.window}.Run(ctx)
			}))
		}
		if err := b.alternate(ctx, b.runs, trials...); err != nil {
			return err
		}
	}
	return nil
}

func withFifty(c figures.Case) figures.Case { c.Waiting = 50; return c }

func waitingTables(s figures.Set) []table {
	queues := []string{channelQueue, memoryQueue, fileQueue, predecessorQueue}
	cases := inOrder(s, figures.Turn, func(a, b figures.Case) int {
		return slices.Index(queues, a.Contestant) - slices.Index(queues, b.Contestant)
	})
	return []table{tabulate(s,
		"The library alone: a turn while that many wait, microseconds. A turn makes a ticket, hands the turn over and removes the ticket.", cases,
		label("queue", name), label("waiting", waiting),
		spread("cost of a turn", figures.Turn), ratio("of that with 50", figures.Turn, withFifty),
		spread("processor time", figures.TurnWork), ratio("of that with 50", figures.TurnWork, withFifty),
		spread("from Leave to the next Enter, median", figures.HandOver), median("99th percentile", figures.HandOverLate))}
}

func drawWaiting(s figures.Set) [][]chart.Panel {
	against := func(m figures.Metric, title string) chart.Panel {
		return panel(s, m, title, "waiting", func(c figures.Case) int { return c.Waiting }, func(figures.Case) bool { return true })
	}
	return [][]chart.Panel{{
		against(figures.Turn, "time of a turn, µs"),
		against(figures.TurnWork, "processor's time of a turn, µs"),
		against(figures.HandOver, "from Leave to the next Enter, median, µs"),
	}}
}

func waitingTargets(all figures.Set) (ts []target) {
	for _, c := range all.Of("waiting").Cases(figures.Turn) {
		if c.Waiting == 8000 && (c.Contestant == fileQueue || c.Contestant == memoryQueue) {
			ts = append(ts,
				atMost("a turn with 8,000 waiting, of that with 50, "+name(c), 1.5, "", all.Ratio(c, withFifty(c), figures.Turn)),
				atMost("the same, processor time", 1.5, "", all.Ratio(c, withFifty(c), figures.TurnWork)))
		}
	}
	file := onDisk(all.Of("waiting"), figures.HandOver, fileQueue, figures.Case{Suite: "waiting", Waiting: 50})
	ours, channel := all.Summary(file, figures.HandOver), all.Summary(instead(channelQueue)(file), figures.HandOver)
	more := figures.Summary{Median: ours.Median - channel.Median, Min: ours.Min - channel.Max, Max: ours.Max - channel.Min, N: ours.N}
	if math.IsNaN(more.Median) {
		more.N = 0
	}
	return append(ts, atMost("hand-over in one process, file on a disk, more than a channel's, 50 waiting", 10, " µs", more))
}

package library

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/bench/internal/proc"
	"github.com/orderly-http/caddy-orderly/bench/internal/results"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// Relay is a number of runners, spread over processes, who pass one turn around.
type Relay struct {
	Dir       string
	Processes int
	Runners   int           // in each process
	Hold      time.Duration // that each turn lasts
	Laps      int           // turns of each runner
}

// Baton is how long a turn took from one who left to the next, who waited for it
// already: on the clock that all processes share.
type Baton struct {
	Within, Between Passes // within one process, and from one to another
}

// Passes are the hand-overs of one kind.
type Passes struct {
	N            int
	Median, Late time.Duration // Late is the 99th percentile
}

// lap is one turn of a runner.
type lap struct {
	Token         uint64
	Entered, Left int64 // on the monotonic clock, nanoseconds
	LeftWall      int64 // the same moment as numbers of tickets have it
	Process       int
}

type runners struct {
	Relay
	Process int
	Start   int64 // on the monotonic clock
}

func init() { proc.Role("runners", run) }

// Run measures a relay.
func (r Relay) Run(ctx context.Context) (Baton, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	start := monotonic() + int64(500*time.Millisecond)
	var all []*proc.Running[[]lap]
	for i := range r.Processes {
		running, err := proc.Begin[[]lap](ctx, "runners", runners{Relay: r, Process: i, Start: start}, nil)
		if err != nil {
			return Baton{}, err
		}
		all = append(all, running)
	}
	var laps []lap
	for _, running := range all {
		part, err := running.Report()
		if err != nil {
			return Baton{}, err
		}
		laps = append(laps, part...)
	}
	return evaluate(laps)
}

// monotonic is the clock that all processes of this machine share.
func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano()
}

func run(ctx context.Context, r runners) ([]lap, error) {
	engine, err := open(File, r.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = engine.Close() }()
	time.Sleep(time.Duration(r.Start - monotonic()))
	laps := make([][]lap, r.Runners)
	errs := make([]error, r.Runners)
	var done sync.WaitGroup
	for i := range r.Runners {
		done.Go(func() { laps[i], errs[i] = r.runOne(ctx, engine) })
	}
	done.Wait()
	return slices.Concat(laps...), errors.Join(errs...)
}

func (r runners) runOne(ctx context.Context, engine serializer.Engine) ([]lap, error) {
	laps := make([]lap, 0, r.Laps)
	for range r.Laps {
		turn, err := engine.Enter(ctx, arrival)
		if err != nil {
			return nil, err
		}
		l := lap{Token: turn.Token(), Entered: monotonic(), Process: r.Process}
		if r.Hold > 0 {
			time.Sleep(r.Hold)
		}
		l.LeftWall, l.Left = time.Now().UnixMicro(), monotonic()
		turn.Leave()
		laps = append(laps, l)
	}
	return laps, nil
}

// evaluate lays the laps of all runners in a row. Only those count who had their
// ticket when the one before them left: others came late, and waited for
// nobody.
func evaluate(laps []lap) (b Baton, err error) {
	slices.SortFunc(laps, func(a, b lap) int { return cmp.Compare(a.Token, b.Token) })
	var within, between []time.Duration
	for i := 1; i < len(laps); i++ {
		before, l := laps[i-1], laps[i]
		if l.Entered < before.Left {
			return b, fmt.Errorf("ticket %d entered before %d had left", l.Token, before.Token)
		}
		took := time.Duration(l.Entered - before.Left)
		switch {
		case int64(l.Token) >= before.LeftWall:
		case l.Process == before.Process:
			within = append(within, took)
		default:
			between = append(between, took)
		}
	}
	return Baton{passes(within), passes(between)}, nil
}

func passes(took []time.Duration) (p Passes) {
	if len(took) == 0 {
		return p
	}
	slices.Sort(took)
	return Passes{
		N:      len(took),
		Median: time.Duration(results.Quantile(took, 0.5)),
		Late:   time.Duration(results.Quantile(took, 0.99)),
	}
}

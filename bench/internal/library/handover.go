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

// Relay is a number of runners, spread over processes, that pass one turn around.
type Relay struct {
	Dir       string
	Processes int
	Runners   int           // in each process
	Hold      time.Duration // that each turn lasts
	Laps      int           // turns of each runner
}

// Passes are hand-overs, from a leaving holder to the next that waited for it
// already, on the clock that all processes share.
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

// Run measures a relay: hand-overs within the process if there is one, and
// else those between two.
func (r Relay) Run(ctx context.Context) (Passes, error) {
	tasks := make([]any, r.Processes)
	start := monotonic() + int64(500*time.Millisecond)
	for i := range tasks {
		tasks[i] = runners{Relay: r, Process: i, Start: start}
	}
	laps, err := proc.AskAll[[]lap](ctx, "runners", tasks, nil)
	if err != nil {
		return Passes{}, err
	}
	within, between, err := evaluate(slices.Concat(laps...))
	if r.Processes > 1 {
		return between, err
	}
	return within, err
}

// monotonic is the clock that all processes of this machine share.
func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano()
}

func run(ctx context.Context, r runners) ([]lap, error) {
	engine, err := Engine{File, r.Dir}.open()
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

// evaluate orders the laps of all runners. Only those count whose ticket was
// taken before the holder ahead of them left: others came late, and waited for
// nobody.
func evaluate(laps []lap) (within, between Passes, err error) {
	slices.SortFunc(laps, func(a, b lap) int { return cmp.Compare(a.Token, b.Token) })
	took := make(map[bool][]time.Duration) // by whether the process was the same
	for i := 1; i < len(laps); i++ {
		before, l := laps[i-1], laps[i]
		if l.Entered < before.Left {
			return within, between, fmt.Errorf("ticket %d entered before %d had left", l.Token, before.Token)
		}
		if int64(l.Token) < before.LeftWall {
			same := l.Process == before.Process
			took[same] = append(took[same], time.Duration(l.Entered-before.Left))
		}
	}
	return passes(took[true]), passes(took[false]), nil
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

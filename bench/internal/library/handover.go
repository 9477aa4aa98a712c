package library

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
	"github.com/orderly-http/caddy-orderly/bench/internal/proc"
)

// Relay is a number of runners, spread over processes, that pass one turn around.
type Relay struct {
	Dir       string
	Processes int
	Runners   int           // in each process
	Hold      time.Duration // that each turn lasts
	Laps      int           // turns of each runner
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

// Run measures hand-overs: within the process if there is one, and else those between
// two.
func (r Relay) Run(ctx context.Context) (figures.Values, error) {
	tasks := make([]any, r.Processes)
	start := monotonic() + int64(500*time.Millisecond)
	for i := range tasks {
		tasks[i] = runners{r, i, start}
	}
	laps, err := proc.AskAll[[]lap](ctx, "runners", tasks, proc.Tracer{})
	if err != nil {
		return nil, err
	}
	took, err := handOvers(slices.Concat(laps...), r.Processes > 1)
	return passes(took), err
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
	laps := make([]lap, r.Runners*r.Laps)
	var group errgroup.Group
	for own := range slices.Chunk(laps, r.Laps) {
		group.Go(func() error {
			for i := range own {
				turn, err := engine.Enter(ctx, arrival)
				if err != nil {
					return err
				}
				own[i] = lap{Token: turn.Token(), Entered: monotonic(), Process: r.Process}
				time.Sleep(r.Hold)
				own[i].LeftWall, own[i].Left = time.Now().UnixMicro(), monotonic()
				turn.Leave()
			}
			return nil
		})
	}
	return laps, group.Wait()
}

// handOvers are those between processes, or else within. Only those count whose
// ticket was taken before the holder ahead of them left: others came late, and waited
// for nobody.
func handOvers(laps []lap, between bool) (took []time.Duration, err error) {
	slices.SortFunc(laps, func(a, b lap) int { return cmp.Compare(a.Token, b.Token) })
	for i := 1; i < len(laps); i++ {
		before, l := laps[i-1], laps[i]
		if l.Entered < before.Left {
			return nil, fmt.Errorf("ticket %d entered before %d had left", l.Token, before.Token)
		}
		if int64(l.Token) < before.LeftWall && (l.Process != before.Process) == between {
			took = append(took, time.Duration(l.Entered-before.Left))
		}
	}
	return took, nil
}

// passes sums hand-overs up. If nobody waited for anybody, there is no time to tell.
func passes(took []time.Duration) figures.Values {
	values := figures.Values{figures.HandOvers: float64(len(took))}
	if slices.Sort(took); len(took) > 0 {
		values[figures.HandOver] = figures.Microseconds(figures.Quantile(took, 0.5))
		values[figures.HandOverLate] = figures.Microseconds(figures.Quantile(took, 0.99))
	}
	return values
}

//go:build linux

// Package relay measures how long a turn takes from a holder that leaves to the next
// waiter, in another process.
package relay

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile"
)

// Relay is two processes that pass one turn to and fro, by lock files.
type Relay struct {
	Dir   string        // of the lock files
	Hold  time.Duration // that each turn lasts
	Laps  int           // turns of each process
	Start time.Time     // of the first turns; Run sets it
}

// lap is one turn of a process.
type lap struct {
	Token         uint64
	Entered, Left int64 // nanoseconds on the clock of all processes
	runner        int   // which of the processes
}

const env = "ORDERLY_BENCH_RELAY"

// Play does this process's turns if it was started for them, and ends it then.
func Play(ctx context.Context) {
	text, ok := os.LookupEnv(env)
	if !ok {
		return
	}
	var r Relay
	err := json.Unmarshal([]byte(text), &r)
	if err == nil {
		var laps []lap
		laps, err = r.run(ctx)
		err = errors.Join(err, json.NewEncoder(os.Stdout).Encode(laps))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Run returns the hand-overs in order of length.
func (r Relay) Run(ctx context.Context) ([]time.Duration, error) {
	laps := make([][]lap, 2)
	r.Start = time.Now().Add(300 * time.Millisecond)
	group, ctx := errgroup.WithContext(ctx)
	for i := range laps {
		group.Go(func() (err error) {
			laps[i], err = r.ask(ctx)
			for j := range laps[i] {
				laps[i][j].runner = i
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return handOvers(slices.Concat(laps...))
}

// ask has a process of its own do the turns.
func (r Relay) ask(ctx context.Context) (laps []lap, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	task, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("writing the task of a process: %w", err)
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), env+"="+string(task))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &laps)
	}
	if err != nil {
		return nil, fmt.Errorf("running in a process of its own: %w", err)
	}
	return laps, nil
}

var arrival = serializer.Arrival{
	Queue:   "bench_",
	Client:  "192.0.2.1:36794",
	Rule:    serializer.Rule{Limit: 1},
	Timeout: time.Minute, // nobody here waits that long
}

func (r Relay) run(ctx context.Context) ([]lap, error) {
	store, err := lockfile.Open(r.Dir, lockfile.Options{})
	if err != nil {
		return nil, err
	}
	engine := serializer.New(store, serializer.Options{})
	defer func() { _ = engine.Close() }()
	time.Sleep(time.Until(r.Start))
	laps := make([]lap, r.Laps)
	for i := range laps {
		turn, err := engine.Enter(ctx, arrival)
		if err != nil {
			return nil, err
		}
		laps[i] = lap{Token: turn.Token(), Entered: time.Now().UnixNano()}
		time.Sleep(r.Hold)
		laps[i].Left = time.Now().UnixNano()
		turn.Leave()
	}
	return laps, nil
}

// handOvers are those between the processes. Only those count whose ticket was taken
// before the holder ahead of them left: others came late, and waited for nobody. The
// number of a ticket is the time, in microseconds.
func handOvers(laps []lap) (took []time.Duration, err error) {
	slices.SortFunc(laps, func(a, b lap) int { return cmp.Compare(a.Token, b.Token) })
	for i := 1; i < len(laps); i++ {
		before, l := laps[i-1], laps[i]
		if l.Entered < before.Left {
			return nil, fmt.Errorf("ticket %d entered before %d had left", l.Token, before.Token)
		}
		if int64(l.Token) < before.Left/1000 && l.runner != before.runner {
			took = append(took, time.Duration(l.Entered-before.Left))
		}
	}
	if len(took) == 0 {
		return nil, errors.New("no turn was handed over")
	}
	slices.Sort(took)
	return took, nil
}

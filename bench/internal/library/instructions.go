package library

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/orderly-http/caddy-orderly/bench/internal/proc"
)

// Crowded is a number of turns while others wait.
type Crowded struct {
	Engine  string
	Dir     string
	Waiting int
	Turns   int
}

func init() { proc.Role("crowded", crowded) }

// crowded returns after so many turns. Who waits then ends with the process.
func crowded(ctx context.Context, c Crowded) (struct{}, error) {
	runtime.GOMAXPROCS(1) // else threads that look for work are counted, too
	engine, err := open(c.Engine, c.Dir)
	if err != nil {
		return struct{}{}, err
	}
	first, err := engine.Enter(ctx, arrival)
	if err != nil {
		return struct{}{}, err
	}
	var coming, turns atomic.Int64
	done := make(chan error, c.Waiting)
	for range c.Waiting {
		go func() {
			coming.Add(1)
			for {
				turn, err := engine.Enter(ctx, arrival)
				if err != nil || turns.Add(1) == int64(c.Turns) {
					done <- err
					return
				}
				turn.Leave()
			}
		}()
	}
	for coming.Load() < int64(c.Waiting) {
		runtime.Gosched() // each goes on until it waits
	}
	first.Leave()
	return struct{}{}, <-done
}

// Instructions counts the instructions of a turn, without the kernel's:
// callgrind counts those of few turns and of many, and the difference belongs to
// the turns between. gogc is the value of GOGC.
func (c Crowded) Instructions(ctx context.Context, valgrind, home, gogc string) (float64, error) {
	few := c
	few.Turns = c.Turns / 4
	before, err := few.count(ctx, valgrind, home, gogc)
	if err != nil {
		return 0, err
	}
	after, err := c.count(ctx, valgrind, home, gogc)
	return (after - before) / float64(c.Turns-few.Turns), err
}

func (c Crowded) count(ctx context.Context, valgrind, home, gogc string) (float64, error) {
	file := filepath.Join(home, "callgrind")
	_, err := proc.Ask[struct{}](ctx, "crowded", c, func(cmd *exec.Cmd) *exec.Cmd {
		counted := exec.Command(valgrind, append([]string{"--tool=callgrind", "--callgrind-out-file=" + file}, cmd.Args...)...)
		// Callgrind stumbles over the signals with which the runtime
		// interrupts goroutines.
		counted.Env = append(slices.Clone(cmd.Env), "GOGC="+gogc, "GODEBUG=asyncpreemptoff=1")
		return counted
	})
	if err != nil {
		return 0, fmt.Errorf("counting instructions: %w", err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("counting instructions: %w", err)
	}
	return parseTotal(text)
}

var totals = regexp.MustCompile(`(?m)^totals: (\d+)`)

// parseTotal reads the number of instructions from a file of callgrind.
func parseTotal(text []byte) (float64, error) {
	match := totals.FindSubmatch(text)
	if match == nil {
		return 0, errors.New("counting instructions: callgrind's file has no total")
	}
	return strconv.ParseFloat(string(match[1]), 64)
}

package library

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/orderly-http/caddy-orderly/bench/internal/proc"
)

// count has a tracer count what a role does. The tracer writes its counts to the
// file that takes the place of FILE in its arguments.
func count(ctx context.Context, role string, task any, home string, tracer []string, env ...string) ([]byte, error) {
	file := filepath.Join(home, role+".counts")
	tracer = slices.Clone(tracer)
	for i := range tracer {
		tracer[i] = strings.ReplaceAll(tracer[i], "FILE", file)
	}
	if _, err := proc.Ask[struct{}](ctx, role, task, tracer, env...); err != nil {
		return nil, err
	}
	return os.ReadFile(file)
}

// Calls are system calls by name.
type Calls map[string]float64

// Sum is the number of all calls.
func (c Calls) Sum() (sum float64) {
	for _, n := range c {
		sum += n
	}
	return sum
}

// schedulers are the calls with which Go's runtime puts threads to sleep and
// wakes them. Under strace, their number tells how slow strace is.
var schedulers = []string{"futex", "nanosleep", "sched_yield", "epoll_pwait", "tgkill", "rt_sigreturn", "getpid"}

// Own is the number of calls without those of the runtime's scheduler.
func (c Calls) Own() float64 {
	sum := c.Sum()
	for _, name := range schedulers {
		sum -= c[name]
	}
	return sum
}

// Syscalls counts the system calls of one turn, of the whole process with the
// runtime's own: strace counts those of little work and of much, and the
// difference belongs to the turns between.
func (w Work) Syscalls(ctx context.Context, strace, home string) (Calls, error) {
	little := w
	little.Turns = w.Turns / 4
	perTurn := make(Calls)
	for sign, work := range map[float64]Work{-1: little, 1: w} {
		text, err := count(ctx, "work", work, home, []string{strace, "-f", "-c", "-U", "calls,name", "-o", "FILE"})
		if err != nil {
			return nil, fmt.Errorf("counting system calls: %w", err)
		}
		for name, n := range parseCalls(text) {
			perTurn[name] += sign * n / float64(w.Callers*(w.Turns-little.Turns))
		}
	}
	return perTurn, nil
}

// parseCalls reads the table of strace -c -U calls,name.
func parseCalls(text []byte) Calls {
	calls := make(Calls)
	for line := range bytes.Lines(text) {
		fields := strings.Fields(string(line))
		if len(fields) != 2 || fields[1] == "total" {
			continue
		}
		if n, err := strconv.ParseFloat(fields[0], 64); err == nil {
			calls[fields[1]] = n
		}
	}
	return calls
}

// Crowded is a number of turns while others wait.
type Crowded struct {
	Engine
	Waiting int
	Turns   int
}

func init() { proc.Role("crowded", crowded) }

// crowded returns after so many turns. Callers that wait then end with the
// process.
func crowded(ctx context.Context, c Crowded) (struct{}, error) {
	runtime.GOMAXPROCS(1) // else threads that look for work are counted, too
	engine, err := c.open()
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
// the turns between. The garbage collector runs as GOGC has it.
func (c Crowded) Instructions(ctx context.Context, valgrind, home, gogc string) (perTurn float64, err error) {
	few := c
	few.Turns = c.Turns / 4
	for sign, work := range map[float64]Crowded{-1: few, 1: c} {
		// Callgrind stumbles over the signals with which the runtime
		// interrupts goroutines.
		text, err := count(ctx, "crowded", work, home, []string{valgrind, "--tool=callgrind", "--callgrind-out-file=FILE"},
			"GOGC="+gogc, "GODEBUG=asyncpreemptoff=1")
		if err != nil {
			return 0, fmt.Errorf("counting instructions: %w", err)
		}
		total, err := parseTotal(text)
		if err != nil {
			return 0, fmt.Errorf("counting instructions: %w", err)
		}
		perTurn += sign * total / float64(c.Turns-few.Turns)
	}
	return perTurn, nil
}

var totals = regexp.MustCompile(`(?m)^totals: (\d+)`)

// parseTotal reads the number of instructions from a file of callgrind.
func parseTotal(text []byte) (float64, error) {
	match := totals.FindSubmatch(text)
	if match == nil {
		return 0, errors.New("callgrind's file has no total")
	}
	return strconv.ParseFloat(string(match[1]), 64)
}

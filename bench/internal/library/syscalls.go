package library

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/orderly-http/caddy-orderly/bench/internal/proc"
)

// Work is a number of turns, by callers who know nothing of each other.
type Work struct {
	Engine  string
	Dir     string
	Callers int
	Turns   int // of each
}

func init() { proc.Role("work", work) }

func work(ctx context.Context, w Work) (struct{}, error) {
	engine, err := open(w.Engine, w.Dir)
	if err != nil {
		return struct{}{}, err
	}
	defer func() { _ = engine.Close() }()
	return struct{}{}, w.do(func() error { return turns(ctx, engine, w.Turns) })
}

// do has each caller do something.
func (w Work) do(something func() error) error {
	errs := make([]error, w.Callers)
	var done sync.WaitGroup
	for i := range errs {
		done.Go(func() { errs[i] = something() })
	}
	done.Wait()
	return errors.Join(errs...)
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
func (c Calls) Own() (sum float64) {
	for name, n := range c {
		if !slices.Contains(schedulers, name) {
			sum += n
		}
	}
	return sum
}

// Syscalls counts the system calls of one turn, of the whole process with the
// runtime's own: strace counts those of little work and of much, and the
// difference belongs to the turns between.
func (w Work) Syscalls(ctx context.Context, strace, home string) (Calls, error) {
	little := w
	little.Turns = w.Turns / 4
	before, err := little.trace(ctx, strace, home)
	if err != nil {
		return nil, err
	}
	after, err := w.trace(ctx, strace, home)
	if err != nil {
		return nil, err
	}
	perTurn := make(Calls)
	more := float64(w.Callers * (w.Turns - little.Turns))
	for name, n := range after {
		perTurn[name] = (n - before[name]) / more
	}
	return perTurn, nil
}

func (w Work) trace(ctx context.Context, strace, home string) (Calls, error) {
	file := filepath.Join(home, "strace")
	_, err := proc.Ask[struct{}](ctx, "work", w, func(cmd *exec.Cmd) *exec.Cmd {
		traced := exec.Command(strace, append([]string{"-f", "-c", "-U", "calls,name", "-o", file}, cmd.Args...)...)
		traced.Env = cmd.Env
		return traced
	})
	if err != nil {
		return nil, fmt.Errorf("counting system calls: %w", err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("counting system calls: %w", err)
	}
	return parseCalls(text), nil
}

// parseCalls reads the table of strace -c -U calls,name.
func parseCalls(text []byte) Calls {
	calls := make(Calls)
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) != 2 || fields[1] == "total" {
			continue
		}
		if n, err := strconv.ParseFloat(fields[0], 64); err == nil {
			calls[fields[1]] = n
		}
	}
	return calls
}

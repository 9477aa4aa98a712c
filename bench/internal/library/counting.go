package library

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/proc"
)

// count has a tracer count what a role does, with few turns and with many: the
// difference belongs to the turns between. The tracer writes its counts to the file
// that takes the place of FILE in its arguments.
func count(ctx context.Context, role string, few, many any, turns int, home string, tracer proc.Tracer, parse func([]byte) (Calls, error)) (Calls, error) {
	file := filepath.Join(home, role+".counts")
	tracer.Command = slices.Clone(tracer.Command)
	for i, arg := range tracer.Command {
		tracer.Command[i] = strings.ReplaceAll(arg, "FILE", file)
	}
	perTurn := make(Calls)
	for sign, task := range map[float64]any{-1: few, 1: many} {
		if _, err := proc.Ask[any](ctx, role, task, tracer); err != nil {
			return nil, fmt.Errorf("counting with %s: %w", tracer.Command[0], err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("counting with %s: %w", tracer.Command[0], err)
		}
		counts, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("counting with %s: %w", tracer.Command[0], err)
		}
		for name, n := range counts {
			perTurn[name] += sign * n / float64(turns)
		}
	}
	return perTurn, nil
}

// Calls are what was counted, by name.
type Calls map[string]float64

// Sum is the number of all calls.
func (c Calls) Sum() (sum float64) {
	for _, n := range c {
		sum += n
	}
	return sum
}

// schedulers are the calls with which Go's runtime puts threads to sleep and wakes
// them. Under strace, their number tells how slow strace is.
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
// runtime's own, by strace.
func (w Work) Syscalls(ctx context.Context, strace, home string) (Calls, error) {
	few := w
	few.Turns = w.Turns / 4
	tracer := proc.Tracer{Command: []string{strace, "-f", "-c", "-U", "calls,name", "-o", "FILE"}}
	return count(ctx, "work", few, w, w.Callers*(w.Turns-few.Turns), home, tracer, parseCalls)
}

// parseCalls reads the table of strace -c -U calls,name.
func parseCalls(text []byte) (Calls, error) {
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
	return calls, nil
}

// Instructions counts those of a turn, without the kernel's, by callgrind. The garbage
// collector runs as gogc has it.
func (q Queueing) Instructions(ctx context.Context, valgrind, home, gogc string) (float64, error) {
	q.Limit = time.Hour
	few := q
	few.Turns = q.Turns / 4
	counts, err := count(ctx, "queueing", few, q, q.Turns-few.Turns, home, proc.Tracer{
		Command: []string{valgrind, "--tool=callgrind", "--callgrind-out-file=FILE"},
		// Callgrind stumbles over the signals with which the runtime interrupts
		// goroutines, and would count threads that look for work.
		Env: []string{"GOGC=" + gogc, "GODEBUG=asyncpreemptoff=1", "GOMAXPROCS=1"},
	}, parseTotal)
	return counts.Sum(), err
}

var totals = regexp.MustCompile(`(?m)^totals: (\d+)`)

// parseTotal reads the number of instructions from a file of callgrind.
func parseTotal(text []byte) (Calls, error) {
	match := totals.FindSubmatch(text)
	if match == nil {
		return nil, errors.New("callgrind's file has no total")
	}
	n, err := strconv.ParseFloat(string(match[1]), 64)
	return Calls{"instructions": n}, err
}

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
	"github.com/orderly-http/caddy-orderly/bench/internal/server"
)

// ownCalls is the figure of a request's calls, without those with which Go's runtime puts
// threads to sleep and wakes them. Under strace, the number of these shows how slow
// strace is.
const ownCalls = "calls"

var schedulers = map[string]bool{
	"futex": true, "nanosleep": true, "sched_yield": true, "epoll_pwait": true, "tgkill": true, "rt_sigreturn": true, "getpid": true, "madvise": true,
	"restart_syscall": true,
}

// countCalls counts the system calls of a server's process while it serves.
func (b *bench) countCalls(ctx context.Context, r serving) (figures.Values, error) {
	strace, err := server.Find("strace")
	if err != nil {
		return nil, err
	}
	counts := filepath.Join(b.home, "calls")
	cmd := exec.CommandContext(ctx, strace, "-f", "-c", "-U", "calls,name", "-o", counts, "-p", strconv.Itoa(r.Pid()))
	said, err := cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("counting system calls: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("counting system calls: %w", err)
	}
	// It says when it has attached itself, or why it cannot.
	if line, _ := bufio.NewReader(said).ReadString('\n'); !strings.Contains(line, "attached") {
		return nil, errors.Join(fmt.Errorf("counting system calls: %s", line), cmd.Wait())
	}
	o, err := b.load(ctx, r)
	err = errors.Join(err, cmd.Process.Signal(syscall.SIGINT))
	_ = cmd.Wait() // it ends by the signal
	text, readErr := os.ReadFile(counts)
	if err := errors.Join(err, readErr); err != nil {
		return nil, fmt.Errorf("counting system calls: %w", err)
	}
	return perRequest(string(text), o.Requests), nil
}

// perRequest reads the table of strace -c -U calls,name.
func perRequest(text string, requests int) figures.Values {
	sum := 0.0
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 2 || fields[1] == "total" || schedulers[fields[1]] {
			continue
		}
		if n, err := strconv.ParseFloat(fields[0], 64); err == nil {
			sum += n
		}
	}
	return figures.Values{ownCalls: sum / float64(requests)}
}

// Package proc starts other programs and makes sure that none outlives this one.
package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Child is a program that runs beside this one, with all the processes it starts.
type Child struct {
	cmd  *exec.Cmd
	out  tail
	done chan struct{}
	err  error
}

// Start runs a program in a process group of its own. It is ended when ctx is,
// or by Stop; the kernel ends it should this program be killed.
func Start(ctx context.Context, cmd *exec.Cmd) (*Child, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c := &Child{cmd: cmd, done: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = &c.out
	}
	cmd.Stderr = &c.out
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", cmd.Path, err)
	}
	stop := context.AfterFunc(ctx, c.Stop)
	go func() {
		defer close(c.done)
		defer stop()
		if err := cmd.Wait(); err != nil {
			c.err = fmt.Errorf("%s: %w\n%s", cmd.Path, err, &c.out)
		}
	}()
	return c, nil
}

// Stop ends the program and what it started: it asks first, then kills.
func (c *Child) Stop() {
	group := -c.cmd.Process.Pid
	_ = syscall.Kill(group, syscall.SIGTERM)
	select {
	case <-c.done:
	case <-time.After(2 * time.Second):
	}
	_ = syscall.Kill(group, syscall.SIGKILL)
	<-c.done
}

// Wait waits for the program to end by itself.
func (c *Child) Wait() error {
	<-c.done
	return c.err
}

// Pid is the number of its process.
func (c *Child) Pid() int { return c.cmd.Process.Pid }

// Await calls ready now and then until it returns no error.
func (c *Child) Await(ctx context.Context, ready func() error) error {
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.done:
			return fmt.Errorf("%s ended: %w", c.cmd.Path, errors.Join(c.err, err))
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("waiting for %s: %w\n%s", c.cmd.Path, err, &c.out)
		}
	}
}

// tail keeps the last part of what is written to it.
type tail struct {
	mu   sync.Mutex
	text bytes.Buffer
}

const tailSize = 8 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text.Write(p)
	t.text.Next(max(0, t.text.Len()-tailSize))
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}

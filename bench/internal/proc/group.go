// Package proc starts other programs and makes sure that none outlives us.
package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Child is a program that runs beside us, with all the processes it starts.
type Child struct {
	name string
	cmd  *exec.Cmd
	out  tail
	done chan struct{}
	err  error
}

// Start runs a program in a process group of its own. It is ended when ctx is,
// or by Stop.
func Start(ctx context.Context, cmd *exec.Cmd) (*Child, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c := &Child{name: cmd.Path, cmd: cmd, done: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = &c.out
	}
	cmd.Stderr = &c.out
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = attributes()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", cmd.Path, err)
	}
	go func() {
		defer close(c.done)
		c.err = cmd.Wait()
	}()
	go func() {
		select {
		case <-ctx.Done():
			c.Stop()
		case <-c.done:
		}
	}()
	return c, nil
}

// PID is the process ID of the program.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Done is closed when the program has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// Wait waits for the program to end.
func (c *Child) Wait() error {
	<-c.done
	if c.err != nil {
		return fmt.Errorf("%s: %w\n%s", c.name, c.err, c.out.String())
	}
	return nil
}

// Stop ends the program and what it started: with a word first, then without.
func (c *Child) Stop() {
	signal(c.PID(), syscall.SIGTERM)
	select {
	case <-c.done:
	case <-time.After(2 * time.Second):
	}
	signal(c.PID(), syscall.SIGKILL)
	<-c.done
}

// Output is the end of what the program has printed.
func (c *Child) Output() string { return c.out.String() }

// Await calls ready now and then until it has no error to tell.
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
			return fmt.Errorf("%s ended: %w\n%s", c.name, errors.Join(c.err, err), c.out.String())
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("waiting for %s: %w\n%s", c.name, err, c.out.String())
		}
	}
}

// Self is a command that runs this program again.
func Self(env ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), env...)
	return cmd, nil
}

// tail keeps the last of what is written to it.
type tail struct {
	mu   sync.Mutex
	text bytes.Buffer
}

const tailSize = 8 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text.Write(p)
	if over := t.text.Len() - tailSize; over > 0 {
		t.text.Next(over)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}

package proc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// A role is a part of this program that must run in a process of its own. It
// reads its task as JSON from standard input and prints its report as JSON.
type role func(ctx context.Context, task []byte) (report any, err error)

var roles = make(map[string]role)

const roleEnv = "ORDERLY_BENCH_ROLE"

// Role makes a function available to processes of their own.
func Role[Task, Report any](name string, play func(context.Context, Task) (Report, error)) {
	roles[name] = func(ctx context.Context, text []byte) (any, error) {
		var task Task
		if err := json.Unmarshal(text, &task); err != nil {
			return nil, fmt.Errorf("reading the task: %w", err)
		}
		return play(ctx, task)
	}
}

// PlayRole does the work of a role if this process was started for one, and
// then ends it.
func PlayRole(ctx context.Context) {
	name, ok := os.LookupEnv(roleEnv)
	if !ok {
		return
	}
	if err := playRole(ctx, name); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func playRole(ctx context.Context, name string) error {
	play := roles[name]
	if play == nil {
		return fmt.Errorf("there is no role %q", name)
	}
	task, err := io.ReadAll(os.Stdin)
	if err != nil {
		return fmt.Errorf("reading the task: %w", err)
	}
	report, err := play(ctx, task)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(report)
}

// Ask has a process of its own play a role, and returns its report. The program
// is run by wrap, if it is not nil: a tracer, say.
func Ask[Report any](ctx context.Context, name string, task any, wrap func(*exec.Cmd) *exec.Cmd) (report Report, err error) {
	running, err := Begin[Report](ctx, name, task, wrap)
	if err != nil {
		return report, err
	}
	return running.Report()
}

// Running is a role being played.
type Running[Report any] struct {
	child *Child
	out   bytes.Buffer
}

// Begin starts a role without waiting for its end.
func Begin[Report any](ctx context.Context, name string, task any, wrap func(*exec.Cmd) *exec.Cmd) (*Running[Report], error) {
	cmd, err := Self(roleEnv + "=" + name)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(task)
	if err != nil {
		return nil, fmt.Errorf("writing the task of %s: %w", name, err)
	}
	if wrap != nil {
		cmd = wrap(cmd)
	}
	r := &Running[Report]{}
	cmd.Stdin, cmd.Stdout = bytes.NewReader(text), &r.out
	if r.child, err = Start(ctx, cmd); err != nil {
		return nil, err
	}
	return r, nil
}

// Report waits for the end.
func (r *Running[Report]) Report() (report Report, err error) {
	if err := r.child.Wait(); err != nil {
		return report, err
	}
	if err := json.Unmarshal(r.out.Bytes(), &report); err != nil {
		return report, fmt.Errorf("reading the report: %w", err)
	}
	return report, nil
}

// Child is the process that plays the role.
func (r *Running[Report]) Child() *Child { return r.child }

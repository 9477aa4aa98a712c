package proc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
)

// A role is a part of this program that must run in a process of its own. It
// reads its task as JSON from standard input and prints its report as JSON.
var roles = make(map[string]func(context.Context) error)

const roleEnv = "ORDERLY_BENCH_ROLE"

// Role makes a function available to processes of their own.
func Role[Task, Report any](name string, play func(context.Context, Task) (Report, error)) {
	roles[name] = func(ctx context.Context) error {
		var task Task
		if err := json.NewDecoder(os.Stdin).Decode(&task); err != nil {
			return fmt.Errorf("reading the task: %w", err)
		}
		report, err := play(ctx, task)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(report)
	}
}

// PlayRole does the work of a role if this process was started for one, and
// then ends it.
func PlayRole(ctx context.Context) {
	name, ok := os.LookupEnv(roleEnv)
	if !ok {
		return
	}
	play := roles[name]
	if play == nil {
		play = func(context.Context) error { return fmt.Errorf("there is no role %q", name) }
	}
	if err := play(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Running is a role being played in a process of its own.
type Running[Report any] struct {
	*Child
	out bytes.Buffer
}

// Begin starts a role without waiting for its end. The tracer, if any, runs its
// program; env is added to its environment.
func Begin[Report any](ctx context.Context, name string, task any, tracer []string, env ...string) (*Running[Report], error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	text, err := json.Marshal(task)
	if err != nil {
		return nil, fmt.Errorf("writing the task of %s: %w", name, err)
	}
	command := slices.Concat(tracer, []string{self})
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(append(os.Environ(), roleEnv+"="+name), env...)
	r := &Running[Report]{}
	cmd.Stdin, cmd.Stdout = bytes.NewReader(text), &r.out
	r.Child, err = Start(ctx, cmd)
	return r, err
}

// Report waits for the end of the role.
func (r *Running[Report]) Report() (report Report, err error) {
	<-r.done
	if r.err != nil {
		return report, r.err
	}
	if err := json.Unmarshal(r.out.Bytes(), &report); err != nil {
		return report, fmt.Errorf("reading the report: %w", err)
	}
	return report, nil
}

// Ask has a process of its own play a role, and returns its report.
func Ask[Report any](ctx context.Context, name string, task any, tracer []string, env ...string) (report Report, err error) {
	reports, err := AskAll[Report](ctx, name, []any{task}, tracer, env...)
	if err != nil {
		return report, err
	}
	return reports[0], nil
}

// AskAll has a process for each task play the role at the same time.
func AskAll[Report any](ctx context.Context, name string, tasks []any, tracer []string, env ...string) ([]Report, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	all := make([]*Running[Report], len(tasks))
	reports := make([]Report, len(tasks))
	var err error
	for i, task := range tasks {
		if all[i], err = Begin[Report](ctx, name, task, tracer, env...); err != nil {
			return nil, err
		}
	}
	for i, running := range all {
		if reports[i], err = running.Report(); err != nil {
			return nil, err
		}
	}
	return reports, nil
}

package proc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"

	"golang.org/x/sync/errgroup"
)

// A role is a part of this program that must run in a process of its own. It reads
// its task as JSON from standard input and prints its report as JSON.
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

// PlayRole does the work of a role if this process was started for one, and then
// ends it.
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

// Tracer is a program that runs a role's program, and what to add to the role's
// environment.
type Tracer struct{ Command, Env []string }

// Begin starts a role without waiting for its end. Its report goes to report.
func Begin(ctx context.Context, name string, task any, report *bytes.Buffer, tracer Tracer) (*Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	text, err := json.Marshal(task)
	if err != nil {
		return nil, fmt.Errorf("writing the task of %s: %w", name, err)
	}
	command := slices.Concat(tracer.Command, []string{self})
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = slices.Concat(os.Environ(), []string{roleEnv + "=" + name}, tracer.Env)
	cmd.Stdin, cmd.Stdout = bytes.NewReader(text), report
	return Start(ctx, cmd)
}

// Ask has a process of its own play a role, and returns its report.
func Ask[Report any](ctx context.Context, name string, task any, tracer Tracer) (report Report, err error) {
	var text bytes.Buffer
	child, err := Begin(ctx, name, task, &text, tracer)
	if err == nil {
		err = child.Wait()
	}
	if err != nil {
		return report, err
	}
	if err := json.Unmarshal(text.Bytes(), &report); err != nil {
		return report, fmt.Errorf("reading the report of %s: %w", name, err)
	}
	return report, nil
}

// AskAll has a process for each task play the role at the same time.
func AskAll[Report any](ctx context.Context, name string, tasks []any, tracer Tracer) ([]Report, error) {
	reports := make([]Report, len(tasks))
	group, ctx := errgroup.WithContext(ctx)
	for i, task := range tasks {
		group.Go(func() (err error) {
			reports[i], err = Ask[Report](ctx, name, task, tracer)
			return err
		})
	}
	return reports, group.Wait()
}

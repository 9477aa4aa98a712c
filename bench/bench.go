//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
	"github.com/orderly-http/caddy-orderly/bench/internal/machine"
	"github.com/orderly-http/caddy-orderly/bench/internal/servers"
)

// bench is where suites are measured.
type bench struct {
	options
	home string // for files that are thrown away
	disk string // for lock files
	shm  string // for lock files, in memory

	suite   string      // that is being measured
	set     figures.Set // its figures
	turn    int         // the run that is being measured
	backend *servers.Backend
	program string // Caddy with the plugin, once it is built
	waited  time.Duration
}

func newBench(o options) (*bench, error) {
	raiseFileLimit()
	b := &bench{options: o}
	err := os.MkdirAll(o.out, 0o755)
	for dir, parent := range map[*string]string{&b.home: "", &b.disk: diskDirectory(), &b.shm: "/dev/shm"} {
		var made error
		*dir, made = fresh(parent)
		err = errors.Join(err, made)
	}
	if err == nil {
		err = os.Chmod(b.home, 0o755) // servers may go on as another user
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making directories: %w", err), b.close())
	}
	return b, nil
}

// diskDirectory chooses a place for lock files that is not in memory.
func diskDirectory() string {
	for _, dir := range []string{os.TempDir(), "/var/tmp", "."} {
		if machine.FileSystem(dir) != machine.Tmpfs {
			return dir
		}
	}
	return os.TempDir()
}

// fresh makes a new directory below parent.
func fresh(parent string) (string, error) { return os.MkdirTemp(parent, "queue-bench-") }

func (b *bench) close() error {
	var errs []error
	for _, dir := range []string{b.home, b.disk, b.shm} {
		if dir != "" {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	return errors.Join(errs...)
}

// raiseFileLimit allows as many open files as may be allowed, to this process and to
// all that it starts: thousands of clients need them.
func raiseFileLimit() {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil {
		limit.Cur = limit.Max
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	}
}

// mostClients is how many clients the limit of open files allows: a proxy needs two
// for each.
func mostClients() int { return machine.FileLimit()/2 - 200 }

// say reports progress.
func (b *bench) say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// skip reports a contestant that cannot be measured because its program is missing.
// Other errors are returned.
func (b *bench) skip(what string, err error) error {
	if _, missing := errors.AsType[*machine.Missing](err); !missing {
		return err
	}
	b.say("SKIPPED %s: %v", what, err)
	return nil
}

const machineFile = "machine.csv"

// measureAll runs the suites that are wanted. A failed suite does not keep the others
// from being measured.
func (b *bench) measureAll(ctx context.Context) error {
	var errs []error
	for _, s := range suites {
		if len(b.only) > 0 && !slices.Contains(b.only, s.name) || ctx.Err() != nil {
			continue
		}
		if b.suite == "" {
			if err := figures.Write(filepath.Join(b.out, machineFile), machine.Describe(ctx, b.disk, b.shm)); err != nil {
				return err
			}
		}
		if err := b.run(ctx, s); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
		}
	}
	return errors.Join(append(errs, ctx.Err())...)
}

// run measures one suite and saves its figures.
func (b *bench) run(ctx context.Context, s suite) error {
	began := time.Now()
	b.say("== %s", s.name)
	var err error
	if b.backend, err = servers.StartBackend(ctx); err != nil {
		return err
	}
	defer b.backend.Stop()
	b.suite, b.set = s.name, nil
	err = s.measure(ctx, b)
	b.say("-- %s: %s", s.name, time.Since(began).Round(time.Second))
	if len(b.set) == 0 {
		return err
	}
	// Figures from before an error, or before an interruption, stand.
	return errors.Join(err, figures.Write(filepath.Join(b.out, s.name+".csv"), b.set))
}

// trial is one contestant under one set of conditions, and how to measure it.
type trial struct {
	figures.Case
	measure func(context.Context) (figures.Values, error)
}

// alternate measures the trials in turns, run after run, each on a calm machine if
// that is wished. Another one begins each time.
func (b *bench) alternate(ctx context.Context, runs int, trials ...trial) error {
	for run := range runs {
		for i := range trials {
			t := trials[(i+run)%len(trials)]
			b.turn = run + 1
			if err := b.try(ctx, t); err != nil {
				return fmt.Errorf("%s: %w", conditions(t.Case), err)
			}
		}
	}
	return nil
}

// note adds figures of the turn that is being measured.
func (b *bench) note(c figures.Case, values figures.Values) {
	c.Suite = b.suite
	b.set.Add(c, b.turn, values)
}

func (b *bench) try(ctx context.Context, t trial) error {
	if err := b.awaitCalm(ctx); err != nil {
		return err
	}
	var values figures.Values
	others, err := machine.UsedByOthers(func() (err error) {
		values, err = t.measure(ctx)
		return err
	})
	b.note(t.Case, values)
	if err != nil {
		return err
	}
	b.note(t.Case, figures.Values{figures.Others: others})
	b.say("run %d: %s: %v", b.turn, conditions(t.Case), values)
	return ctx.Err()
}

const (
	calmSample   = 300 * time.Millisecond
	calmPatience = 10 * time.Minute // in all
)

// awaitCalm waits until other programs leave the machine alone.
func (b *bench) awaitCalm(ctx context.Context) error {
	for b.calm > 0 && b.waited < calmPatience && ctx.Err() == nil {
		others, err := machine.UsedByOthers(func() error {
			time.Sleep(calmSample)
			return nil
		})
		if err != nil {
			return err
		}
		if others < b.calm {
			break
		}
		b.waited += calmSample
	}
	return ctx.Err()
}

// caddyProgram is Caddy with the plugin, which is built if it is not yet.
func (b *bench) caddyProgram(ctx context.Context) (string, error) {
	if b.program != "" {
		return b.program, nil
	}
	b.say("building caddy with the plugin")
	root, err := servers.Root(ctx)
	if err != nil {
		return "", err
	}
	b.program, err = servers.BuildCaddy(ctx, root, b.home)
	return b.program, err
}

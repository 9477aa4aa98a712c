//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/bench/internal/machine"
	"github.com/orderly-http/caddy-orderly/bench/internal/results"
	"github.com/orderly-http/caddy-orderly/bench/internal/servers"
)

// workbench is where suites are measured.
type workbench struct {
	options
	home string // for files that are thrown away
	disk string // for lock files
	shm  string // for lock files, in memory

	set     results.Set // the figures of the suite that is being measured
	program string      // Caddy with the plugin, once it is built
	waited  time.Duration
}

func newBench(o options) (*workbench, error) {
	raiseFileLimit()
	b := &workbench{options: o}
	err := os.MkdirAll(o.out, 0o755)
	for dir, parent := range map[*string]string{&b.home: "", &b.disk: diskDirectory(o.disk), &b.shm: "/dev/shm"} {
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
func diskDirectory(wish string) string {
	if wish != "" {
		return wish
	}
	for _, dir := range []string{os.TempDir(), "/var/tmp", "."} {
		if machine.FileSystem(dir) != tmpfs {
			return dir
		}
	}
	return os.TempDir()
}

// fresh makes a new directory below parent.
func fresh(parent string) (string, error) { return os.MkdirTemp(parent, "queue-bench-") }

func (b *workbench) close() error {
	var errs []error
	for _, dir := range []string{b.home, b.disk, b.shm} {
		if dir != "" {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	return errors.Join(errs...)
}

// raiseFileLimit allows as many open files as may be allowed, to this process
// and to all that it starts: thousands of clients need them.
func raiseFileLimit() {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil {
		limit.Cur = limit.Max
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	}
}

// mostClients is how many clients the limit of open files allows: a proxy needs
// two for each.
func mostClients() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int(min(limit.Cur, 1<<20))/2 - 200
}

// say reports progress.
func (b *workbench) say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// skip reports a subject that cannot be measured because its program is
// missing. Other errors are returned.
func (b *workbench) skip(subject any, err error) error {
	if _, missing := errors.AsType[*servers.Missing](err); !missing {
		return err
	}
	b.say("SKIPPED %s: %v", subject, err)
	return nil
}

// measureAll runs the suites that are wanted. A failed suite does not keep the
// others from being measured.
func (b *workbench) measureAll(ctx context.Context) error {
	var errs []error
	described := false
	for _, s := range suites {
		if !b.wants(s.name) || ctx.Err() != nil {
			continue
		}
		if !described {
			described = true
			if err := b.describe(ctx); err != nil {
				return err
			}
		}
		if err := b.run(ctx, s); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
		}
	}
	return errors.Join(append(errs, ctx.Err())...)
}

const machineFile = "machine.csv"

// describe writes down what machine this is.
func (b *workbench) describe(ctx context.Context) error {
	facts := append([]machine.Fact{{"date", time.Now().UTC().Format(time.DateOnly)}}, machine.Describe(ctx, b.disk, b.shm)...)
	for _, f := range facts {
		b.say("%s: %s", f[0], f[1])
	}
	return machine.WriteFile(filepath.Join(b.out, machineFile), facts)
}

// run measures one suite and saves its figures.
func (b *workbench) run(ctx context.Context, s suite) error {
	began := time.Now()
	b.say("== %s", s.name)
	b.set = nil
	err := s.measure(ctx, b)
	b.say("-- %s: %s", s.name, time.Since(began).Round(time.Second))
	if len(b.set) == 0 {
		return err
	}
	// Figures from before an error, or before an interruption, stand.
	return errors.Join(err, b.set.WriteFile(filepath.Join(b.out, s.name+".csv")))
}

// othersMetric is the part of the machine that other programs used during a
// run.
var othersMetric = results.Metric{Name: "used by other programs", Unit: "%"}

// round does one run of one case, on a calm machine if that is wished, and notes
// what other programs used meanwhile.
func (b *workbench) round(ctx context.Context, c results.Case, run int, do func() error) error {
	if err := b.awaitCalm(ctx); err != nil {
		return err
	}
	others, err := machine.UsedByOthers(do)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Subject, err)
	}
	b.set.Add(c, run, othersMetric, 100*others)
	return ctx.Err()
}

const calmSample = 300 * time.Millisecond

// awaitCalm waits until other programs leave the machine alone.
func (b *workbench) awaitCalm(ctx context.Context) error {
	for b.calm > 0 && b.waited < b.patience && ctx.Err() == nil {
		others, err := machine.UsedByOthers(func() error {
			time.Sleep(calmSample)
			return nil
		})
		if err != nil {
			return err
		}
		if 100*others < b.calm {
			break
		}
		b.waited += calmSample
	}
	return ctx.Err()
}

func milliseconds[T ~int64 | ~float64](ns T) float64 { return float64(ns) / float64(time.Millisecond) }
func microseconds[T ~int64 | ~float64](ns T) float64 { return float64(ns) / float64(time.Microsecond) }

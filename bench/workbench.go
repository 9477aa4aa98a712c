//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/machine"
	"github.com/orderly-http/caddy-orderly/bench/internal/results"
	"github.com/orderly-http/caddy-orderly/bench/internal/servers"
)

// suite is one part of the measurements. Its figures are in the file of its
// name.
type suite struct {
	name    string
	measure func(context.Context, *workbench, *results.Set) error
	tables  func(results.Set) []table
	draw    func(s results.Set, dir string) error // nil draws nothing
}

var suites = []*suite{respondSuite, proxySuite, sharingSuite, collectorSuite, waitingSuite, handoverSuite, headersSuite, idsSuite, costSuite}

// workbench is where suites are measured.
type workbench struct {
	options
	home string // for files that are thrown away
	disk string // for lock files
	shm  string // for lock files, in memory

	caddyProgram string // once it is built
	waited       time.Duration
}

func newBench(o options) (b *workbench, err error) {
	raiseFileLimit()
	b = &workbench{options: o}
	if b.home, err = os.MkdirTemp("", "queue-bench-"); err != nil {
		return nil, fmt.Errorf("making a directory for temporary files: %w", err)
	}
	if err := os.Chmod(b.home, 0o755); err != nil { // servers may go on as another user
		return nil, errors.Join(err, b.close())
	}
	if b.disk, err = lockDirectory(onDisk(o.disk)); err != nil {
		return nil, errors.Join(err, b.close())
	}
	if b.shm, err = lockDirectory("/dev/shm"); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

// onDisk chooses a place for lock files that is not in memory.
func onDisk(wish string) string {
	if wish != "" {
		return wish
	}
	for _, dir := range []string{os.TempDir(), "/var/tmp", "."} {
		if machine.FileSystem(dir) != "tmpfs" {
			return dir
		}
	}
	return os.TempDir()
}

func lockDirectory(parent string) (string, error) {
	dir, err := os.MkdirTemp(parent, "queue-bench-")
	if err != nil {
		return "", fmt.Errorf("making a directory for lock files: %w", err)
	}
	return dir, nil
}

// fresh returns a new directory below dir.
func fresh(dir string) (string, error) { return lockDirectory(dir) }

func (b *workbench) close() error {
	var errs []error
	for _, dir := range []string{b.home, b.disk, b.shm} {
		if dir != "" {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	return errors.Join(errs...)
}

// raiseFileLimit allows as many files as may be allowed, to us and to all that
// we start: thousands of clients need them.
func raiseFileLimit() {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err == nil {
		limit.Cur = limit.Max
		_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
	}
}

// mostClients is how many clients the limit of files allows: a proxy needs two
// for each.
func mostClients() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int(min(limit.Cur, 1<<20))/2 - 200
}

// say tells how things go.
func (b *workbench) say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// skip tells of a subject that cannot be measured, if it is a program that is
// missing; other errors are returned.
func (b *workbench) skip(subject string, err error) error {
	var missing *servers.Missing
	if !errors.As(err, &missing) {
		return err
	}
	b.say("SKIPPED %s: %v", subject, err)
	return nil
}

// run measures one suite and saves its figures.
func (b *workbench) run(ctx context.Context, s *suite) error {
	began := time.Now()
	b.say("== %s", s.name)
	var set results.Set
	err := s.measure(ctx, b, &set)
	b.say("-- %s: %s", s.name, time.Since(began).Round(time.Second))
	if len(set) == 0 {
		return err
	}
	// What was measured before an error, or before an interruption, stands.
	return errors.Join(err, set.WriteFile(filepath.Join(b.out, s.name+".csv")))
}

// caddy is a Caddy with the plugin, built when it is first asked for.
func (b *workbench) caddy(ctx context.Context) (program string, err error) {
	if b.caddyProgram == "" {
		b.say("building caddy with the plugin")
		b.caddyProgram, err = servers.BuildCaddy(ctx, b.home)
	}
	return b.caddyProgram, err
}

// othersMetric is the part of the machine that other programs used during a
// run.
const othersMetric = "used by other programs"

// round does one run of one case: when the machine is calm, if that is wished,
// and noting what others did meanwhile.
func (b *workbench) round(ctx context.Context, set *results.Set, c results.Case, run int, do func() error) error {
	if err := b.awaitCalm(ctx); err != nil {
		return err
	}
	before, err := machine.UsageNow()
	if err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	after, err := machine.UsageNow()
	if err != nil {
		return err
	}
	set.Add(c, run, othersMetric, 100*after.Others(before), "%")
	return ctx.Err()
}

const calmSample = 300 * time.Millisecond

// awaitCalm waits until other programs leave the machine alone.
func (b *workbench) awaitCalm(ctx context.Context) error {
	for b.calm > 0 && b.waited < b.patience {
		before, err := machine.UsageNow()
		if err != nil {
			return err
		}
		time.Sleep(calmSample)
		after, err := machine.UsageNow()
		if err != nil {
			return err
		}
		if 100*after.Others(before) < b.calm || ctx.Err() != nil {
			break
		}
		b.waited += calmSample
	}
	return ctx.Err()
}

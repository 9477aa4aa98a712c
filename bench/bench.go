package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
	"github.com/orderly-http/caddy-orderly/bench/internal/server"
)

// bench is where suites are measured.
type bench struct {
	options
	home  string // for files that are thrown away, on a disk: lock files are among them
	caddy string // with the plugin, once it is built

	set *figures.Set // of the suite that is being measured
}

// say reports progress.
func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// measure measures a suite.
func (b *bench) measure(ctx context.Context, s suite) (*figures.Set, error) {
	began := time.Now()
	say("== %s", s.name)
	b.set = &figures.Set{Date: began.UTC().Format(time.DateOnly)}
	ctx, stop := context.WithCancel(ctx) // what the suite has started ends with it
	defer stop()
	err := s.measure(ctx, b)
	say("-- %s: %s", s.name, time.Since(began).Round(time.Second))
	return b.set, err
}

// machine describes what matters for the figures.
func (b *bench) machine(ctx context.Context) string {
	said := func(program string, args ...string) string {
		path, err := server.Find(program)
		if err != nil {
			return program + " missing"
		}
		out, _ := exec.CommandContext(ctx, path, args...).Output()
		line, _, _ := bytes.Cut(out, []byte("\n"))
		return strings.TrimSpace(string(line))
	}
	_, model, _ := strings.Cut(said("grep", "model name", "/proc/cpuinfo"), ": ")
	return strings.Join([]string{
		fmt.Sprintf("%d × %s", runtime.NumCPU(), model), said("uname", "-sr"), runtime.Version(),
		"lock files on " + said("findmnt", "-no", "FSTYPE", "-T", b.home),
		said("haproxy", "-v"), said("apache2", "-v"), said("php-fpm", "-v"),
	}, "; ")
}

// trial is one contestant under one set of conditions, and how to measure it.
type trial struct {
	figures.Case
	measure func(context.Context) (figures.Values, error)
}

// alternate measures the trials in turns, round after round. Another one begins each
// time.
func (b *bench) alternate(ctx context.Context, rounds int, trials []trial) error {
	for round := range rounds {
		for i := range trials {
			t := trials[(i+round)%len(trials)]
			others, err := busy()
			if err != nil {
				return err
			}
			b.set.Others = append(b.set.Others, others)
			values, err := t.measure(ctx)
			if errors.Is(err, server.ErrMissing) {
				say("LEFT OUT %s: %v", t.Who, err)
				continue
			}
			if err := errors.Join(err, ctx.Err()); err != nil {
				return fmt.Errorf("%s, %d clients, %v inside: %w", t.Who, t.Clients, t.Hold, err)
			}
			b.set.Add(t.Case, values)
			say("round %d: %s, %d clients, %v inside: %v", round+1, t.Who, t.Clients, t.Hold, values)
		}
	}
	return nil
}

// busy is how much of the machine is used, in percent, while nothing of ours works: by
// other programs.
func busy() (float64, error) {
	usedBefore, allBefore, err := processors()
	if err != nil {
		return 0, err
	}
	time.Sleep(150 * time.Millisecond)
	used, all, err := processors()
	return 100 * (used - usedBefore) / max(all-allBefore, 1), err
}

// processors is the time that all processors have worked and existed, in ticks.
func processors() (used, all float64, err error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, fmt.Errorf("reading the processors' time: %w", err)
	}
	var user, nice, system, idle, iowait, irq, softirq, steal float64
	if _, err := fmt.Sscan(strings.TrimPrefix(string(text), "cpu"), &user, &nice, &system, &idle, &iowait, &irq, &softirq, &steal); err != nil {
		return 0, 0, fmt.Errorf("reading the processors' time: %w", err)
	}
	used = user + nice + system + irq + softirq + steal
	return used, used + idle + iowait, nil
}

// buildCaddy builds Caddy with the plugin from its source in root, into dir.
func buildCaddy(ctx context.Context, root, dir string) (program string, err error) {
	say("building caddy")
	program = dir + "/caddy"
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", program, "./cmd/caddy")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building caddy (run this in the folder bench): %w\n%s", err, out)
	}
	return program, nil
}

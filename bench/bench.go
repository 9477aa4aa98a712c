package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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

// buildCommit builds Caddy from a commit.
func (b *bench) buildCommit(ctx context.Context, commit string) (program string, err error) {
	dir := filepath.Join(b.home, "before")
	const unpack = `mkdir "$1" && git -C .. archive "$2" | tar -xC "$1"`
	if out, err := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", unpack, "-", dir, commit).CombinedOutput(); err != nil {
		return "", fmt.Errorf("checking out %s: %w\n%s", commit, err, out)
	}
	return buildCaddy(ctx, dir, dir)
}

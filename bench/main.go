//go:build linux

// Command bench measures Orderly beside other servers, other queues and other
// makers of IDs, side by side on this machine, and prints ratios.
//
//	go run .                                   all of it, about an hour
//	go run . -quick                            a look, one or two minutes
//	go run . -only proxy,handover -runs 3      parts
//	go run . -only none -out ../docs/performance -doc ../docs/performance.md
//
// Every figure of every run goes to CSV files in the folder of -out. Tables and
// plots are made from those files, old ones and new ones, so they can be made
// again without measuring. With -doc, the tables in that document are replaced.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/machine"
	"github.com/orderly-http/caddy-orderly/bench/internal/proc"
)

// options are the flags.
type options struct {
	quick    bool
	only     []string
	runs     int
	window   time.Duration
	out, doc string
	disk     string
	calm     float64
	patience time.Duration
}

func main() {
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as it is under nohup
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	defer stop()
	proc.PlayRole(ctx)
	if err := bench(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func parseOptions() (options, error) {
	var o options
	var only string
	names := make([]string, 0, len(suites))
	for _, s := range suites {
		names = append(names, s.name)
	}
	flag.BoolVar(&o.quick, "quick", false, "few conditions, short runs: a look, not a measurement")
	flag.StringVar(&only, "only", "", "measure only these, separated by commas, or none; of "+strings.Join(names, ", "))
	flag.IntVar(&o.runs, "runs", 0, "how often each thing has its turn (default 5, quick 2)")
	flag.DurationVar(&o.window, "duration", 0, "how long each run counts (default 2s, quick 250ms)")
	flag.StringVar(&o.out, "out", "results", "folder for CSV files and plots")
	flag.StringVar(&o.doc, "doc", "", "document whose tables to replace")
	flag.StringVar(&o.disk, "disk", "", "directory on a disk for lock files (default: the first of $TMPDIR, /var/tmp and . that is on one)")
	flag.Float64Var(&o.calm, "calm", 0, "before each run, wait until other programs use less than this many percent of the machine; 0 does not wait")
	flag.DurationVar(&o.patience, "patience", 10*time.Minute, "how long to wait for that, in all")
	flag.Parse()
	if only != "" {
		o.only = strings.Split(only, ",")
	}
	for _, name := range o.only {
		if name != "none" && !slices.Contains(names, name) {
			return o, fmt.Errorf("there is no %q; there are %s", name, strings.Join(names, ", "))
		}
	}
	o.setDefaults()
	return o, nil
}

func (o *options) setDefaults() {
	runs, window := 5, 2*time.Second
	if o.quick {
		runs, window = 2, 250*time.Millisecond
	}
	if o.runs == 0 {
		o.runs = runs
	}
	if o.window == 0 {
		o.window = window
	}
}

func (o *options) wants(name string) bool { return len(o.only) == 0 || slices.Contains(o.only, name) }

func bench(ctx context.Context) (err error) {
	o, err := parseOptions()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return fmt.Errorf("making the folder for results: %w", err)
	}
	b, err := newBench(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	err = b.measureAll(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(err, report(o))
}

// measureAll runs the suites that are wanted. What one cannot do does not keep
// the others from it.
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

// describe writes down what machine this is.
func (b *workbench) describe(ctx context.Context) error {
	facts := machine.Describe(ctx, []string{b.disk, b.shm})
	facts = append([]machine.Fact{{Name: "date", Value: time.Now().UTC().Format(time.DateOnly)}}, facts...)
	for _, f := range facts {
		b.say("%s: %s", f.Name, f.Value)
	}
	return machine.WriteFile(filepath.Join(b.out, machineFile), facts)
}

const machineFile = "machine.csv"

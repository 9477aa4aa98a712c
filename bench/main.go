//go:build linux

// Command bench measures Orderly beside other servers, other queues and other
// generators of IDs, side by side on this machine, and prints ratios.
//
//	go run .                                   all of it, two hours
//	go run . -quick                            a look, about ten minutes
//	go run . -only proxy,handover -runs 3      parts
//	go run . -only none -out ../docs/performance -doc ../docs/performance.md
//	go run . -against HEAD~1                   fails if this checkout is slower than a commit
//
// Every figure of every run goes to CSV files in the folder of -out. Tables and plots
// are made from those files, old and new, so they can be made again without
// measuring. With -doc, the tables in that document are replaced.
//
// A suite is one file, suite_NAME.go: what it measures, its contestants, its tables,
// its drawing and the promises about it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/chart"
	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
	"github.com/orderly-http/caddy-orderly/bench/internal/proc"
)

// suite is one part of the measurements. Its figures are in the file NAME.csv, its
// drawing in NAME.png.
type suite struct {
	name    string
	measure func(context.Context, *bench) error
	tables  func(figures.Set) []table
	draw    func(figures.Set) [][]chart.Panel // nil draws nothing
	targets func(figures.Set) []target        // of the figures of all suites; nil promises nothing
}

var suites = []suite{
	realSuite, peersSuite, slowSuite, nestingSuite, pagesSuite,
	respondSuite, proxySuite, sharingSuite, collectorSuite, handoverSuite, waitingSuite, headersSuite, idsSuite, costSuite,
}

// options are the flags.
type options struct {
	quick    bool
	only     []string
	runs     int
	window   time.Duration
	out, doc string
	against  string
	calm     float64
}

func main() {
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as it is under nohup
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	defer stop()
	proc.PlayRole(ctx)
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	o, err := parseOptions()
	if err != nil {
		return err
	}
	b, err := newBench(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if o.against != "" {
		return b.guardAgainst(ctx, o.against)
	}
	err = b.measureAll(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(err, report(o))
}

func parseOptions() (o options, err error) {
	names := []string{"none"}
	for _, s := range suites {
		names = append(names, s.name)
	}
	list := strings.Join(names, ", ")
	only := flag.String("only", "", "measure only these, separated by commas; of "+list)
	flag.BoolVar(&o.quick, "quick", false, "few conditions, short runs: a look, not a measurement")
	flag.IntVar(&o.runs, "runs", 0, "how often each contestant has its turn (default 5, quick 2)")
	flag.DurationVar(&o.window, "duration", 0, "how long each run counts (default 2s, quick 250ms, with -against 400ms)")
	flag.StringVar(&o.out, "out", "results", "folder for CSV files and plots")
	flag.StringVar(&o.doc, "doc", "", "document whose tables to replace")
	flag.StringVar(&o.against, "against", "", "a commit: measure only whether this checkout is slower, and fail if it is beyond noise")
	flag.Float64Var(&o.calm, "calm", 0, "before each run, wait until other programs use less than this many percent of the machine, for ten minutes in all; 0 does not wait")
	flag.Parse()
	if *only != "" {
		o.only = strings.Split(*only, ",")
	}
	for _, name := range o.only {
		if !slices.Contains(names, name) {
			return o, fmt.Errorf("there is no suite %q; choose of %s", name, list)
		}
	}
	if o.runs == 0 {
		o.runs = pick(o.quick, 2, 5)
	}
	if o.window == 0 && o.against != "" {
		o.window = guardWindow
	}
	if o.window == 0 {
		o.window = pick(o.quick, 250*time.Millisecond, 2*time.Second)
	}
	return o, nil
}

// pick chooses between a look and a measurement.
func pick[T any](quick bool, quickly, thoroughly T) T {
	if quick {
		return quickly
	}
	return thoroughly
}

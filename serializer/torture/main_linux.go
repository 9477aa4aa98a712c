package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	if isProcess() {
		os.Exit(beProcess())
	}
	c, err := parseFlags(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if c.needsMount() && !inOwnNamespace() {
		os.Exit(runInNamespace(ctx))
	}
	report, err := torture(ctx, c)
	if err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
		os.Exit(2)
	}
	fmt.Print(report)
	if !report.ok() {
		os.Exit(1)
	}
}

// config is what a run should do.
type config struct {
	handovers  int
	procs      int
	goroutines int
	seed       uint64
	faults     []string
	dir        string
	engine     string
	pace       time.Duration // mean time between two faults
	limit      time.Duration
	stop       string
	dump       time.Duration
	quiet      bool
}

const (
	maxProcs      = 64
	maxGoroutines = 256
)

func defaults() config {
	return config{
		handovers:  100_000,
		procs:      8,
		goroutines: 64,
		seed:       rand.Uint64() >> 32,
		faults:     slices.Clone(allFaults),
		engine:     "file",
		pace:       150 * time.Millisecond,
		limit:      time.Hour,
	}
}

func parseFlags(args []string) (config, error) {
	c := defaults()
	var faults string
	flags := flag.NewFlagSet("torture", flag.ContinueOnError)
	flags.IntVar(&c.handovers, "handovers", c.handovers, "stop after this number of hand-overs")
	flags.IntVar(&c.procs, "procs", c.procs, "number of processes")
	flags.IntVar(&c.goroutines, "goroutines", c.goroutines, "number of goroutines in each process")
	flags.Uint64Var(&c.seed, "seed", c.seed, "seed of the random numbers")
	flags.StringVar(&faults, "faults", "all", "which faults to throw: all, none, or names separated by commas;\n"+
		"a name with a minus sign in front is removed from the list:\n"+faultHelp())
	flags.StringVar(&c.dir, "dir", "", "an empty directory to work in (default a new temporary one)")
	flags.StringVar(&c.engine, "engine", c.engine, "the engine under torture: "+strings.Join(engineNames(), ", ")+"\n(with go run -tags mutants, also engines with one deliberate defect)")
	flags.DurationVar(&c.pace, "pace", c.pace, "mean time between two faults")
	flags.DurationVar(&c.limit, "limit", c.limit, "stop after this time in any case")
	flags.StringVar(&c.stop, "stop", c.stop, "stop at the first \"overlap\", \"inversion\" or \"intrusion\" (an entry into a paused queue)")
	flags.DurationVar(&c.dump, "dump", c.dump, "if a call takes this long, end its process with its stacks on stderr (0: never)")
	flags.BoolVar(&c.quiet, "quiet", c.quiet, "no progress on stderr")
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	if flags.NArg() > 0 {
		return c, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	var err error
	c.faults, err = chooseFaults(faults)
	switch {
	case err != nil:
		return c, err
	case c.procs < 1 || c.procs > maxProcs:
		return c, fmt.Errorf("-procs must be 1 to %d", maxProcs)
	case c.goroutines < 1 || c.goroutines > maxGoroutines:
		return c, fmt.Errorf("-goroutines must be 1 to %d", maxGoroutines)
	case c.handovers < 1:
		return c, errors.New("-handovers must be at least 1")
	case !slices.Contains([]string{"", "overlap", "inversion", "intrusion"}, c.stop):
		return c, errors.New(`-stop must be "overlap", "inversion" or "intrusion"`)
	case c.pace <= 0:
		return c, errors.New("-pace must be greater than 0")
	case !slices.Contains(engineNames(), c.engine):
		return c, fmt.Errorf("unknown engine %q; there are %s", c.engine, strings.Join(engineNames(), ", "))
	}
	return c, nil
}

func (c config) has(fault string) bool { return slices.Contains(c.faults, fault) }

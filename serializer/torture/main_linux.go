// Command torture tries to break the lock-file queue, and reports whether it did.
//
//	go run ./serializer/torture -for 10m
//
// It starts several processes with many goroutines each, which enter the same few queues
// in one directory again and again, some of them while they are inside another one. The oracle behind the queues reads a pipe: each entry
// and each exit is one write, which the kernel takes completely or not at all. So the log
// is in the order of events, whatever the scheduler does, and a process that is killed
// leaves no gap. The oracle reports exactly
//
//   - overlaps: two were inside who must not be inside together, or had the same slot;
//   - inversions: a later ticket entered before an earlier one;
//   - intrusions: somebody entered a paused queue. Each process reports which of its
//     tickets were inside when it learned of the pause, so this is exact, too;
//   - wronged callers: evicted although nobody asked for that;
//   - lost calls: a call never returned, or waited in vain.
//
// In the meantime, it causes faults at random, from a printed seed. It kills and stops
// processes, replaces the directory, removes files, takes permissions away, fills the
// disk, and steps the clocks.
//
// It stops at the first finding, and the exit status is then 1. It is also 1 if the queue
// took more than 250 ms to continue after its holder was killed. Once the faults are over,
// every process must be able to enter, and none may be refused.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	beProcessIfAsked()
	c := defaults()
	flag.DurationVar(&c.length, "for", c.length, "how long to run, unless something is found")
	flag.Uint64Var(&c.Seed, "seed", c.Seed, "seed of the random numbers")
	chosen := flag.String("faults", "all", "which faults to throw: all, none, or some of "+strings.Join(names(faults), ","))
	flag.Parse()
	if flag.NArg() > 0 {
		fail(fmt.Errorf("unexpected argument %q", flag.Arg(0)))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fmt.Fprintln(os.Stderr, "torture: seed", c.Seed)
	h, err := torture(ctx, c, *chosen)
	if err != nil {
		fail(err)
	}
	fmt.Print(h)
	if !h.ok() {
		os.Exit(1)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "torture:", err)
	os.Exit(2)
}

// config is what a run should do. Processes get what is exported.
type config struct {
	Goroutines int           // of each process
	Seed       uint64        // of the random numbers
	Store      string        // one of the openers
	Patience   time.Duration // how long callers wait, except for impatient ones
	Number     int           // of the process, unique
	Dir        string        // of the lock files

	length time.Duration
	procs  int
	pace   time.Duration // mean time between two faults
}

func defaults() config {
	return config{
		Goroutines: 64, Seed: rand.Uint64() >> 32, Store: "lockfile", Patience: 20 * time.Second,
		length: time.Minute, procs: 8, pace: 150 * time.Millisecond,
	}
}

// Command ratios measures every generator of IDs in turns, round after round, and
// prints the median time of each and its ratio to rs/xid. Then it measures how
// much more two cores make than one.
//
//	go run ./ratios
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	ids "github.com/orderly-http/caddy-orderly/bench/ids"
)

func main() {
	rounds := flag.Int("rounds", 501, "how often every generator has its turn")
	perTurn := flag.Int("n", 2000, "IDs in a turn: few, so that most turns are not interrupted")
	pairs := flag.Int("pairs", 101, "how often every generator has a turn on two cores")
	perPair := flag.Int("m", 20_000, "IDs in a turn of each of two cores")
	match := flag.String("match", "", "measure only rs/xid and generators whose name contains this")
	flag.Parse()
	log.SetFlags(0)

	ours, err := ids.Ours()
	if err != nil {
		log.Fatal(err)
	}
	generators := slices.DeleteFunc(append(ids.Theirs(), ours...), func(m ids.Generator) bool {
		return !strings.Contains(m.Name, *match) && m.Name != "rs/xid"
	})
	if err := printTimes(generators, *rounds, *perTurn); err != nil {
		log.Fatal(err)
	}
	if err := printScaling(append(generators, ids.Unshared()), *pairs, *perPair); err != nil {
		log.Fatal(err)
	}
}

// printTimes prints nanoseconds for an ID and the ratio to the first generator. The
// ratio is the median of the ratios of the rounds: what disturbs the machine
// disturbs neighbours alike.
func printTimes(generators []ids.Generator, rounds, n int) error {
	times := make([][]float64, len(generators))
	ratios := make([][]float64, len(generators))
	for range rounds {
		var first float64
		for i, generator := range generators {
			took := turn(generator, n)
			if i == 0 {
				first = took
			}
			times[i] = append(times[i], took)
			ratios[i] = append(ratios[i], took/first)
		}
	}

	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "one goroutine\tns, median\tbest\tratio to %s, median\tallocations\n", generators[0].Name)
	for i, generator := range generators {
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.2f\t%.0f\n", generator.Name, median(times[i]), slices.Min(times[i]),
			median(ratios[i]), allocations(generator))
	}
	return w.Flush()
}

// printScaling prints how many more IDs two goroutines make in a time than one.
// A measurement counts only if the machine gave the processor time: one core
// while one worked, two while two did.
func printScaling(generators []ids.Generator, rounds, n int) error {
	runtime.GOMAXPROCS(2)
	scalings := make([][]float64, len(generators))
	for range rounds {
		for i, generator := range generators {
			n := generator.Turn(n)
			var one, two time.Duration
			var oneHad, twoHad float64
			generator.Prepared(func() {
				one, oneHad = timed(func() { generator.Times(n) })
				two, twoHad = timed(func() { together(generator, n) })
			})
			if oneHad > 0.95 && twoHad > 1.9 {
				scalings[i] = append(scalings[i], 2*one.Seconds()/two.Seconds())
			}
		}
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\ntwo cores\ttimes what one makes, median\tof measurements")
	for i, generator := range generators {
		if len(scalings[i]) == 0 {
			fmt.Fprintf(w, "%s\tno second core\t0\n", generator.Name)
			continue
		}
		fmt.Fprintf(w, "%s\t%.2f\t%d\n", generator.Name, median(scalings[i]), len(scalings[i]))
	}
	return w.Flush()
}

// turn is the nanoseconds that one ID takes.
func turn(generator ids.Generator, n int) float64 {
	n = generator.Turn(n)
	var took time.Duration
	generator.Prepared(func() { took, _ = timed(func() { generator.Times(n) }) })
	return float64(took.Nanoseconds()) / float64(n)
}

// together makes n IDs in each of two goroutines.
func together(generator ids.Generator, n int) {
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() { generator.Times(n) })
	}
	both.Wait()
}

// timed is how long f took, and how many cores the process had meanwhile.
func timed(f func()) (took time.Duration, cores float64) {
	before := processorTime()
	began := time.Now()
	f()
	took = time.Since(began)
	return took, float64(processorTime()-before) / float64(took)
}

// processorTime is what the process has had so far of all cores.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		log.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func allocations(generator ids.Generator) float64 {
	many := generator.Turn(10_000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	generator.Prepared(func() { generator.Times(many) })
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / float64(many)
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// Command ratios measures every generator of IDs in turns, round after round, and
// prints the median time of each and its ratio to rs/xid. Then it measures how
// much more two cores make than one.
//
//	go run ./ratios
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
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

// base is the generator that all others are compared with. It comes first.
const base = "rs/xid"

// report is what was measured of a generator.
type report struct {
	Name string
	Ours bool
	*times
	Scaling  *float64 // how many times what one core makes, median; nil without a second core
	Scalings int      // measurements of that
}

// times are the figures of one goroutine.
type times struct {
	Time, Best  float64 // nanoseconds of an ID, median and least
	Ratio       float64 // to the base, median
	Allocations float64 // of an ID
}

func main() {
	rounds := flag.Int("rounds", 501, "how often every generator has its turn")
	perTurn := flag.Int("n", 2000, "IDs in a turn: few, so that most turns are not interrupted")
	pairs := flag.Int("pairs", 101, "how often every generator has a turn on two cores")
	perPair := flag.Int("m", 20_000, "IDs in a turn of each of two cores")
	match := flag.String("match", "", "measure only "+base+" and generators whose name contains this")
	asJSON := flag.Bool("json", false, "print JSON, not tables")
	flag.Parse()
	log.SetFlags(0)

	generators := slices.DeleteFunc(ids.Generators(), func(g ids.Generator) bool {
		return !strings.Contains(g.Name, *match) && g.Name != base
	})
	timed := measureTimes(generators, *rounds, *perTurn)
	reports := measureScaling(append(generators, ids.Unshared()), *pairs, *perPair)
	for i := range timed {
		reports[i].times = &timed[i]
	}
	write := writeTables
	if *asJSON {
		write = func(w io.Writer, reports []report) error { return json.NewEncoder(w).Encode(reports) }
	}
	if err := write(os.Stdout, reports); err != nil {
		log.Fatal(err)
	}
}

func writeTables(out io.Writer, reports []report) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "one goroutine\tns, median\tbest\tratio to %s, median\tallocations\n", base)
	for _, r := range reports {
		if r.times != nil {
			fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.2f\t%.0f\n", r.Name, r.Time, r.Best, r.Ratio, r.Allocations)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\ntwo cores\ttimes what one makes, median\tof measurements")
	for _, r := range reports {
		scaling := "no second core"
		if r.Scaling != nil {
			scaling = fmt.Sprintf("%.2f", *r.Scaling)
		}
		fmt.Fprintf(w, "%s\t%s\t%d\n", r.Name, scaling, r.Scalings)
	}
	return w.Flush()
}

// measureTimes measures nanoseconds for an ID and the ratio to the first
// generator. The ratio is the median of the ratios of the rounds: what disturbs
// the machine disturbs neighbours alike.
func measureTimes(generators []ids.Generator, rounds, n int) []times {
	took := make([][]float64, len(generators))
	ratios := make([][]float64, len(generators))
	for range rounds {
		for i, generator := range generators {
			took[i] = append(took[i], turn(generator, n))
			first := took[0]
			ratios[i] = append(ratios[i], took[i][len(took[i])-1]/first[len(first)-1])
		}
	}
	all := make([]times, len(generators))
	for i, generator := range generators {
		all[i] = times{median(took[i]), slices.Min(took[i]), median(ratios[i]), math.Round(allocations(generator))}
	}
	return all
}

// measureScaling measures how many more IDs two goroutines make in a time than
// one. A measurement counts only if the machine gave the processor time: one core
// while one worked, two while two did.
func measureScaling(generators []ids.Generator, rounds, n int) []report {
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
	all := make([]report, len(generators))
	for i, generator := range generators {
		all[i] = report{Name: generator.Name, Ours: generator.Ours, Scalings: len(scalings[i])}
		if len(scalings[i]) > 0 {
			all[i].Scaling = new(median(scalings[i]))
		}
	}
	return all
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

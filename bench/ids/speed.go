//go:build linux

package ids

import (
	"math"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
	"github.com/orderly-http/caddy-orderly/bench/internal/machine"
)

// Effort is how much is measured.
type Effort struct {
	Rounds, PerTurn int // turns of every generator, and IDs in each: few, so that most turns are not interrupted
	Pairs, PerPair  int // the same on two cores, for each of them
}

// Speed is what was measured of a generator. Figures that it does not have are not
// numbers.
type Speed struct {
	Generator
	Time        float64 // nanoseconds of an ID, median
	Ratio       float64 // to the first generator, rs/xid, median
	Allocations float64 // of an ID
	Scaling     float64 // how many times what one core makes, median
}

// Measure measures every generator in turns, round after round, and then how much more
// two cores make than one. The ratios are those of a round: what disturbs the machine
// disturbs neighbours alike. Last comes [Unshared], which makes no IDs.
func Measure(e Effort) (all []Speed) {
	generators := Generators()
	took, ratios := make([][]float64, len(generators)), make([][]float64, len(generators))
	for round := range e.Rounds {
		for i, generator := range generators {
			took[i] = append(took[i], turn(generator, e.PerTurn))
			ratios[i] = append(ratios[i], took[i][round]/took[0][round])
		}
	}
	for i, generator := range generators {
		all = append(all, Speed{generator, median(took[i]), median(ratios[i]), math.Round(allocations(generator)), 0})
	}
	all = append(all, Speed{Unshared(), math.NaN(), math.NaN(), math.NaN(), 0})
	measureScaling(all, e)
	return all
}

// measureScaling measures how many more IDs two goroutines make in a time than
// one. A measurement counts only if the machine gave the processor time: one core
// while one worked, two while two did.
func measureScaling(all []Speed, e Effort) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	scalings := make([][]float64, len(all))
	for range e.Pairs {
		for i, s := range all {
			n := s.Turn(e.PerPair)
			var one, two time.Duration
			var oneHad, twoHad float64
			s.Prepared(func() {
				one, oneHad = timed(func() { s.Times(n) })
				two, twoHad = timed(func() { together(s.Generator, n) })
			})
			if oneHad > 0.95 && twoHad > 1.9 {
				scalings[i] = append(scalings[i], 2*one.Seconds()/two.Seconds())
			}
		}
	}
	for i := range all {
		all[i].Scaling = median(scalings[i])
	}
}

// turn is the nanoseconds that one ID takes.
func turn(generator Generator, n int) float64 {
	n = generator.Turn(n)
	var took time.Duration
	generator.Prepared(func() { took, _ = timed(func() { generator.Times(n) }) })
	return float64(took.Nanoseconds()) / float64(n)
}

// together makes n IDs in each of two goroutines.
func together(generator Generator, n int) {
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() { generator.Times(n) })
	}
	both.Wait()
}

// timed is how long f took, and how many cores the process had meanwhile.
func timed(f func()) (took time.Duration, cores float64) {
	before := machine.ProcessorTime()
	began := time.Now()
	f()
	took = time.Since(began)
	return took, float64(machine.ProcessorTime()-before) / float64(took)
}

func allocations(generator Generator) float64 {
	many := generator.Turn(10_000)
	return testing.AllocsPerRun(1, func() {
		generator.Prepared(func() { generator.Times(many) })
	}) / float64(many)
}

func median(values []float64) float64 { return figures.Summarize(values).Median }

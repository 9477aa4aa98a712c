package main

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The overlap of two counters is what counting them shows.
func TestOverlap(t *testing.T) {
	const size = 16
	for a := range size {
		for b := range size {
			for r := range 3 * size {
				type id struct{ round, counter int }
				made := map[id]bool{}
				for i := range r {
					made[id{i / size, (a + i) % size}] = true
				}
				want := 0
				for i := range r {
					if made[id{i / size, (b + i) % size}] {
						want++
					}
				}
				if got := overlap(a, b, r, size); got != want {
					t.Fatalf("%d counted from %d and %d overlap in %d, want %d", r, a, b, got, want)
				}
			}
		}
	}
}

func TestMeetings(t *testing.T) {
	const bits, size = 4, 16
	for r := range 3 * size {
		sum := 0
		for a := range size {
			sum += overlap(0, a, r, size)
		}
		if got, want := meetings(float64(r), bits), float64(sum)/size; math.Abs(got-want) > 1e-9 {
			t.Errorf("%d IDs each: %v are equal on average, want %v", r, got, want)
		}
	}
}

func TestPoisson(t *testing.T) {
	s := &simulator{rand.New(rand.NewPCG(1, 2))}
	for _, m := range []float64{0.1, 1, 100, 10_000} {
		const n = 20_000
		var sum, squares float64
		for range n {
			x := float64(s.poisson(m))
			sum += x
			squares += x * x
		}
		mean := sum / n
		variance := squares/n - mean*mean
		if math.Abs(mean-m) > 5*math.Sqrt(m/n) || math.Abs(variance/m-1) > 0.1 {
			t.Errorf("of mean %v: mean is %v, variance %v", m, mean, variance)
		}
	}
}

// The document of ngx_txid and its like put a number on the chance in one
// millisecond; a year has many.
func TestTXIDFormula(t *testing.T) {
	for i, want := range []float64{0.0087, 0.87, 87} {
		got := schemes()[0].expected(fleet{fleetSize, rates[i]})
		if math.Abs(got/want-1) > 0.01 {
			t.Errorf("at %v a second %v are expected, want %v", rates[i], got, want)
		}
	}
}

func TestFormulasHoldInSimulation(t *testing.T) {
	s := &simulator{rand.New(rand.NewPCG(3, 4))}
	for _, e := range []experiment{
		s.windows("txid", 1e5, 1e-3, 10, 300, true),
		s.windows("UUIDv7", 1e6, 1e-3, 18, 50, false),
		s.whole("UUIDv4", 100_000, 28),
		s.nodes("unique_id", 1e6, 8, 16, 500),
		s.nodes("xid", 1e7, 8, 20, 500),
		s.generators(1e7, 100),
	} {
		if apart := e.apart(); math.Abs(apart) > 5 {
			t.Errorf("%s: counted %d, expected %.1f, %.1f deviations apart", e.name, e.counted, e.expected, apart)
		}
	}
}

package main

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The equal IDs of two processes are those that making all IDs shows.
func TestMet(t *testing.T) {
	type id struct{ extra, counter int }
	for _, bits := range []nodeBits{{6, 0, 4}, {6, 3, 4}} {
		size := 1 << bits.counter
		made := func(p process, r int) map[id]bool {
			ids := map[id]bool{}
			for i := range r {
				extra := i / size
				if bits.shifted > 0 {
					extra = (p.shift + i/size) % (1 << bits.shifted)
				}
				ids[id{extra, (p.start + i) % size}] = true
			}
			return ids
		}
		random := rand.New(rand.NewPCG(9, 9))
		for range 20_000 {
			r := random.IntN(4 * size)
			a := process{random.IntN(1 << bits.shifted), random.IntN(size)}
			b := process{random.IntN(1 << bits.shifted), random.IntN(size)}
			want, ofA := 0, made(a, r)
			for id := range made(b, r) {
				if ofA[id] {
					want++
				}
			}
			if got := met(a, b, r, bits); got != want {
				t.Fatalf("%+v: %d IDs of %v and %v are equal in %d, want %d", bits, r, a, b, got, want)
			}
		}
	}
}

func TestMeetings(t *testing.T) {
	const counter, size = 4, 16
	for r := range 4 * size {
		sum := 0
		for start := range size {
			sum += met(process{}, process{0, start}, r, nodeBits{6, 0, counter})
		}
		if got, want := meetings(float64(r), counter), float64(sum)/size; math.Abs(got-want) > 1e-9 {
			t.Errorf("%d IDs each: %v are equal on average, want %v", r, got, want)
		}
		sum = 0
		for start := range size {
			for shift := range 8 {
				sum += met(process{}, process{shift, start}, r, nodeBits{6, 3, counter})
			}
		}
		if got, want := shiftedMeetings(float64(r), counter), float64(sum)/size; math.Abs(got-want) > 1e-9 {
			t.Errorf("%d IDs each, shifted: %v are equal on average, want %v", r, got, want)
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
		s.nodes("unique_id classic", 1e7, nodeBits{8, 3, 16}, 500),
		s.nodes("unique_id threaded", 1e7, nodeBits{8, 0, 16}, 500),
		s.nodes("xid", 1e7, nodeBits{8, 0, 20}, 500),
		s.generators(1e7, 100),
	} {
		if apart := e.apart(); math.Abs(apart) > 5 {
			t.Errorf("%s: counted %d, expected %.1f, %.1f deviations apart", e.name, e.counted, e.expected, apart)
		}
	}
}

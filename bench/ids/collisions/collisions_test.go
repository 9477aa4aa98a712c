package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// The document of ngx_txid and its like put a number on the chance in one millisecond;
// a year has many.
func TestTXIDFormula(t *testing.T) {
	for i, want := range []float64{0.0087, 0.87, 87} {
		if got := schemes()[0].expected(fleet{fleetSize, rates[i]}); math.Abs(got/want-1) > 0.01 {
			t.Errorf("at %v a second %v are expected, want %v", rates[i], got, want)
		}
	}
}

// A collision of real IDs would take too long to wait for. So IDs are made with fewer
// random bits, as many as stated, and all else as it is.
func TestFormulasHoldInSimulation(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, e := range []struct {
		name     string
		times    int
		pairs    func() int // of equal IDs, in one of the times
		expected float64    // in all
	}{
		{"txid at 1e6 a second, 18 bits, 1 ms", 200, func() int { return window(random, 1000, 18, true) },
			200 * pairsInWindow(1000, fleetSize, true) / (1 << 18)},
		{"sharded_id at 1e7 a second, 16 bits, 1 µs", 200_000, func() int { return window(random, 10, 16, true) },
			200_000 * pairsInWindow(10, fleetSize, true) / (1 << 16)},
		{"UUIDv7 and ULID at 1e6 a second, 18 bits, 1 ms", 200, func() int { return window(random, 1000, 18, false) },
			200 * pairsInWindow(1000, fleetSize, false) / (1 << 18)},
		{"UUIDv4, 300,000 of 30 bits", 2, func() int { return alike(random, 300_000, 30) }, 2 * 3e5 * 3e5 / 2 / (1 << 30)},
		{"unique_id classic, 8 bits of node, 3 of a counter", 50, func() int { return nodes(random, 40, 8, 3, true) },
			50 * nodePairs(fleetSize, 8) * shiftedMeetings(40, 3)},
		{"unique_id threaded and xid, 8 bits of node, 4 of a counter", 50, func() int { return nodes(random, 40, 8, 4, false) },
			50 * nodePairs(fleetSize, 8) * meetings(40, 4)},
		{"txid, 100 real generators at 1e7 a second, 26 of 54 bits, 1 ms", 20, realGenerators(random, 10_000, 26),
			20 * pairsInWindow(10_000, fleetSize, true) / (1 << 26)},
	} {
		var sum, squares float64
		for range e.times {
			pairs := float64(e.pairs())
			sum += pairs
			squares += pairs * pairs
		}
		deviation := math.Sqrt(math.Max(squares-sum*sum/float64(e.times), e.expected))
		apart := (sum - e.expected) / deviation
		t.Logf("| %s | %.0f | %.1f | %+.1f sd |", e.name, sum, e.expected, apart)
		if math.Abs(apart) > 5 {
			t.Errorf("%s: counted %.0f, expected %.1f, %.1f deviations apart", e.name, sum, e.expected, apart)
		}
	}
}

// counts are the equal IDs by who made them.
type counts map[uint64][]int

// add returns how many equal IDs there are, without those of the same process where
// that never repeats itself.
func (m counts) add(id uint64, process int, distinct bool) (pairs int) {
	for _, other := range m[id] {
		if !distinct || other != process {
			pairs++
		}
	}
	m[id] = append(m[id], process)
	return pairs
}

// window makes the IDs of one tick of the clock, m on average.
func window(random *rand.Rand, m float64, bits int, distinct bool) (pairs int) {
	made := make(counts)
	for range int(m + math.Sqrt(m)*random.NormFloat64() + 0.5) { // nearly Poisson's law
		pairs += made.add(random.Uint64N(1<<bits), random.IntN(fleetSize), distinct)
	}
	return pairs
}

// alike makes n random numbers.
func alike(random *rand.Rand, n, bits int) (pairs int) {
	made := make(map[uint64]int, n)
	for range n {
		id := random.Uint64N(1 << bits)
		pairs += made[id]
		made[id]++
	}
	return pairs
}

// nodes makes the IDs of one fleet whose processes count r each, from a random start.
// Full rounds of the counter go to an extra counter, or are added to the node's bits.
func nodes(random *rand.Rand, r, bits, counterBits int, shifted bool) (pairs int) {
	made := make(counts)
	for process := range fleetSize {
		node, start := random.IntN(1<<bits), random.IntN(1<<counterBits)
		for i := range r {
			round, counter := i>>counterBits, (start+i)%(1<<counterBits)
			id := uint64(node)<<20 | uint64(round)<<10 | uint64(counter)
			if shifted {
				id = uint64((node+round)%(1<<bits))<<20 | uint64(counter)
			}
			pairs += made.add(id, process, true)
		}
	}
	return pairs
}

// realGenerators lets generators of package uniqueid run against each other, on a clock
// of their own, and compares the first bits of their 54: those that are not drawn at
// random for every ID, but grow with the time or tell lanes apart.
func realGenerators(random *rand.Rand, m float64, bits int) func() int {
	clock := new(clock)
	gens := make([]*uniqueid.TXIDGenerator, fleetSize)
	for i := range gens {
		gens[i] = uniqueid.NewTXIDGenerator(uniqueid.WithClock(clock))
	}
	return func() (pairs int) {
		made := make(counts)
		start := (clock.now + time.Millisecond).Truncate(time.Millisecond)
		arrivals := make([]time.Duration, int(m))
		for i := range arrivals {
			arrivals[i] = start + time.Duration(random.Int64N(int64(time.Millisecond)))
		}
		slices.Sort(arrivals)
		for _, at := range arrivals {
			clock.set(at)
			process := random.IntN(fleetSize)
			id := gens[process].New()
			pairs += made.add(uint64(id.Time().UnixMilli())<<bits|id.Random()>>(54-bits), process, true)
		}
		return pairs
	}
}

// clock is a clock that all generators share. It moves on by a nanosecond when read
// before the first set, so that a generator that looks how fine it is sees that.
type clock struct {
	mu  sync.Mutex
	now time.Duration
	ran bool
}

func (c *clock) Wall() time.Time { return time.UnixMilli(1_700_000_000_000).Add(c.Monotonic()) }

func (c *clock) Monotonic() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ran {
		c.now++
	}
	return c.now
}

func (c *clock) set(now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now, c.ran = now, true
}

package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// experiment makes IDs of a scheme with fewer random bits than it has, so that
// there are collisions to count, and all else as it is. The formula is then
// asked about the same number of bits.
type experiment struct {
	name     string
	rate     float64
	scaled   string
	counted  int     // pairs of equal IDs
	expected float64 // by the formula
	// deviation is the standard deviation of what is counted: the root of what
	// is expected where pairs are independent and Poisson's law holds, otherwise
	// taken from the counts themselves.
	deviation float64
}

// apart is how many standard deviations lie between what was counted and what
// was expected.
func (e experiment) apart() float64 {
	return (float64(e.counted) - e.expected) / e.deviation
}

// poissonian is an experiment whose pairs are independent.
func poissonian(name string, rate float64, scaled string, counted int, expected float64) experiment {
	return experiment{name, rate, scaled, counted, expected, math.Sqrt(expected)}
}

// simulator makes the experiments from one source of randomness.
type simulator struct{ random *rand.Rand }

func (s *simulator) all() (list []experiment) {
	each := func(make func(rate float64) experiment) {
		for _, rate := range rates {
			list = append(list, make(rate))
		}
	}
	each(func(rate float64) experiment { return s.windows("txid", rate, 1e-3, bitsFor(rate*1e-3), 2000, true) })
	list = append(list, s.generators(1e7, 2000))
	each(func(rate float64) experiment {
		return s.windows("sharded_id", rate, 1e-6, 16, int(4e7/max(1, rate/1e6)), true)
	})
	each(func(rate float64) experiment {
		return s.windows("UUIDv7, ULID", rate, 1e-3, bitsFor(rate*1e-3), 2000, false)
	})
	for _, bits := range []int{34, 36, 38} {
		list = append(list, s.whole("UUIDv4", 2_000_000, bits))
	}
	each(func(rate float64) experiment {
		return s.nodes("unique_id classic, random node", rate, nodeBits{12, 4, 16}, 100_000)
	})
	each(func(rate float64) experiment {
		return s.nodes("unique_id threaded, random node", rate, nodeBits{12, 0, 16}, 100_000)
	})
	each(func(rate float64) experiment { return s.nodes("xid", rate, nodeBits{12, 0, 24}, 100_000) })
	return list
}

// bitsFor is how many random bits let about one pair of m IDs collide.
func bitsFor(m float64) int { return int(math.Log2(m * m / 2)) }

// windows makes the IDs of many ticks of the clock.
func (s *simulator) windows(name string, rate, tick float64, bits, windows int, distinct bool) experiment {
	m := rate * tick
	counted := 0
	for range windows {
		counted += s.window(s.poisson(m), bits, distinct)
	}
	return poissonian(
		name, rate,
		fmt.Sprintf("%d random bits, %d windows of %v", bits, windows, time.Duration(tick*1e9)),
		counted,
		pairsInWindow(m, fleetSize, distinct)/math.Exp2(float64(bits))*float64(windows),
	)
}

// window counts the pairs among n IDs of one tick. Where a process never
// repeats itself, a pair of one process does not count.
func (s *simulator) window(n, bits int, distinct bool) (pairs int) {
	if n < 2 {
		return 0
	}
	m := make(makers, n)
	for range n {
		pairs += m.add(s.random.Uint64N(1<<bits), s.random.IntN(fleetSize), distinct)
	}
	return pairs
}

// makers are the processes that made an ID, by its value.
type makers map[uint64][]int

// add notes an ID and counts the pairs it makes with those of before.
func (m makers) add(value uint64, process int, distinct bool) (pairs int) {
	for _, other := range m[value] {
		if !distinct || other != process {
			pairs++
		}
	}
	m[value] = append(m[value], process)
	return pairs
}

// whole makes n IDs that consist of nothing but random bits.
func (s *simulator) whole(name string, n, bits int) experiment {
	pairs := 0
	seen := make(map[uint64]int, n)
	for range n {
		value := s.random.Uint64N(1 << bits)
		pairs += seen[value]
		seen[value]++
	}
	return poissonian(
		name, 0, fmt.Sprintf("%d random bits, %d IDs", bits, n),
		pairs, float64(n)*float64(n)/2/math.Exp2(float64(bits)),
	)
}

// nodeBits is how the processes of an experiment differ.
type nodeBits struct {
	all     int // bits of the node
	shifted int // of these, the top ones that extra counters are added to
	counter int
}

// nodes makes many fleets for one second each, with node bits so few that some
// processes agree in them. Such processes make many equal IDs or none, so the
// deviation is that of the fleets' counts.
func (s *simulator) nodes(name string, rate float64, bits nodeBits, fleets int) experiment {
	r := int(rate / fleetSize)
	var sum, squares float64
	for range fleets {
		pairs := float64(s.fleet(r, bits))
		sum += pairs
		squares += pairs * pairs
	}
	met := meetings
	if bits.shifted > 0 {
		met = shiftedMeetings
	}
	mean := sum / float64(fleets)
	return experiment{
		name, rate,
		fmt.Sprintf("%d bits of node, %d fleets of %d for 1 s", bits.all, fleets, fleetSize),
		int(sum),
		nodePairs(fleetSize, bits.all) * met(float64(r), bits.counter) * float64(fleets),
		math.Sqrt(squares - mean*sum),
	}
}

// process is one process of a simulated fleet.
type process struct{ shift, start int }

// fleet counts the equal IDs of one fleet whose processes make r IDs each.
func (s *simulator) fleet(r int, bits nodeBits) (pairs int) {
	alike := make(map[uint64][]process, fleetSize)
	for range fleetSize {
		node := s.random.Uint64N(1 << (bits.all - bits.shifted))
		p := process{s.random.IntN(1 << bits.shifted), s.random.IntN(1 << bits.counter)}
		for _, other := range alike[node] {
			pairs += met(p, other, r, bits)
		}
		alike[node] = append(alike[node], p)
	}
	return pairs
}

// met is how many equal IDs two processes make that count r each and agree in
// the bits that do not shift.
func met(a, b process, r int, bits nodeBits) (equal int) {
	size := 1 << bits.counter
	apart := b.shift - a.shift
	for i := 0; i*size < r; i++ {
		for j := 0; j*size < r; j++ {
			if bits.shifted == 0 && i == j || bits.shifted > 0 && (i-j-apart)%(1<<bits.shifted) == 0 {
				equal += overlap(a.start, min(size, r-i*size), b.start, min(size, r-j*size), size)
			}
		}
	}
	return equal
}

// overlap is how many counters there are both among the n from a on and among
// the m from b on, where the counter rolls over at size.
func overlap(a, n, b, m, size int) int {
	ahead := ((b-a)%size + size) % size // b is so far after a
	fromB := max(0, min(n-ahead, m))
	if ahead == 0 {
		return fromB
	}
	return fromB + max(0, min(m-(size-ahead), n))
}

// generators lets generators of package uniqueid run against each other, on
// clocks of their own that tell nanoseconds, and compares the first 30 of their
// 54 bits: those that are not drawn at random for every ID, but grow with the
// time or tell lanes apart.
func (s *simulator) generators(rate float64, windows int) experiment {
	const bits = 30
	m := rate * 1e-3
	pairs := 0
	clock := &clock{}
	gens := make([]*uniqueid.TXIDGenerator, fleetSize)
	for i := range gens {
		gens[i] = uniqueid.NewTXIDGenerator(uniqueid.WithClock(clock))
	}
	for window := range windows {
		made := make(makers)
		for _, at := range s.arrivals(s.poisson(m)) {
			clock.set(time.Duration(window+1)*time.Millisecond + at)
			process := s.random.IntN(fleetSize)
			id := gens[process].New()
			value := uint64(id.Time().UnixMilli())<<bits | id.Random()>>(54-bits)
			pairs += made.add(value, process, true)
		}
	}
	return poissonian(
		"txid, real generators", rate,
		fmt.Sprintf("first %d of 54 bits, %d windows of 1ms", bits, windows),
		pairs,
		pairsInWindow(m, fleetSize, true)/math.Exp2(bits)*float64(windows),
	)
}

// arrivals are n moments within a millisecond, in order.
func (s *simulator) arrivals(n int) []time.Duration {
	list := make([]time.Duration, n)
	for i := range list {
		list[i] = time.Duration(s.random.Int64N(int64(time.Millisecond)))
	}
	slices.Sort(list)
	return list
}

// poisson draws how many arrive where m do on average.
func (s *simulator) poisson(m float64) int {
	if m > 500 {
		return int(math.Round(m + math.Sqrt(m)*s.random.NormFloat64()))
	}
	n := -1
	for left := m; left >= 0; n++ {
		left -= s.random.ExpFloat64()
	}
	return n
}

// clock is a clock that all generators of an experiment share. It moves on by a
// nanosecond when read before the first set, so that a generator that looks how
// fine it is sees that.
type clock struct {
	mu   sync.Mutex
	mono time.Duration
	ran  bool
}

var epoch = time.UnixMilli(1_700_000_000_000)

func (c *clock) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return epoch.Add(c.mono)
}

func (c *clock) Monotonic() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ran {
		c.mono++
	}
	return c.mono
}

func (c *clock) set(mono time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mono, c.ran = mono, true
}

package uniqueid

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

const (
	// txidGrowingBits is how much of the 54 bits after the time grows within a millisecond.
	txidGrowingBits = 22
	txidLaneBits    = 12
	txidNonceBits   = 20
	txidNonceMask   = 1<<txidNonceBits - 1
	// txidFreeBits is how much of the growing part is random with a fine clock: all but
	// parts of a millisecond of 31 ns, less than the time needed to make an ID.
	txidFreeBits = 7

	goldenRatio    = 0x9e3779b97f4a7c15
	cacheLinePairs = 128 // processors fetch lines of 64 bytes in pairs
)

// TXIDGenerator makes TXIDs and UUIDv7s. It is safe for concurrent use, never fails, never
// waits and never makes the same ID twice.
//
// The time is wall time, carried forward by the monotonic clock. While the process
// runs, it never goes back, and it follows a step forward within a millisecond. The 54 bits
// that the format calls random are filled so that an ID can neither repeat in the process
// nor be guessed from outside:
//
//	 0                          22          34                  54
//	+---------------------------+-----------+-------------------+
//	| grows within a millisecond|    lane   |       random      |
//	+---------------------------+-----------+-------------------+
//
// The growing part is the fraction of the millisecond, in steps of 31 ns, and 7 random
// bits. So an ID made after another sorts after it, even between goroutines, if such a
// step lies in between.
//
// One word holds the last ID: the next one is greater, if the clock has not moved by a
// random step. Once two cores have met at the word, each makes IDs in a lane of its own,
// so that they share nothing that they write for every ID. A goroutine borrows a lane
// while it makes an ID; the next one on the same core gets that lane again. In each
// millisecond, a lane takes a number that no other lane has then, and the word has number
// 0. So nothing repeats. The number is hidden by bits that a secret makes of all other
// bits.
//
// With a clock coarser than 122 ns, lanes could not keep IDs in order. Then all come from
// the word, whose growing part starts at random in each millisecond and continues in
// random steps. It may run into the next millisecond before the clock does.
//
// The random bits come from a secret and a key, which is drawn anew for each millisecond,
// by default from a cryptographically strong source. To guess the next ID, somebody must
// hit the moment to 31 ns, the lane and 27 bits. Still, a TXID is a name, not a password.
type TXIDGenerator struct {
	clock  *carriedClock
	random func() uint64
	secret uint64
	coarse bool
	free   uint64 // mask of the growing part's random bits
	step   uint64 // mask of a random step

	last atomic.Uint64 // the high 64 bits of the last ID outside lanes
	key  atomic.Uint64 // for the random bits of such IDs in this millisecond
	met  atomic.Bool   // whether cores have met at last, and use lanes

	lanes sync.Pool // of *txidLane
	// claimed is the last lane number that was taken, below its millisecond.
	claimed atomic.Uint64
}

// txidLane makes IDs for one goroutine at a time.
type txidLane struct {
	last    uint64 // the high 64 bits of its last ID
	claimed uint64 // its number, below the millisecond in which it has that
	key     uint64 // for the random bits in that millisecond
	_       [cacheLinePairs - 24]byte
}

// NewTXIDGenerator makes a generator. One is enough for a process. Two generators know
// nothing of each other, and are as likely to make the same ID as two processes are.
func NewTXIDGenerator(options ...Option) *TXIDGenerator {
	s := newSettings(options)
	g := &TXIDGenerator{
		clock:  newCarriedClock(s.clock),
		random: s.random,
		secret: draw(s.random) | 1,
	}
	g.coarse = !isFine(g.clock.clock)
	free := txidFreeBits
	if g.coarse {
		free = txidGrowingBits
	}
	g.free, g.step = 1<<free-1, 1<<(free/3)-1
	g.lanes.New = func() any { return &txidLane{last: g.last.Load()} }
	return g
}

// processTXIDs returns the process's own generator.
var processTXIDs = sync.OnceValue(func() *TXIDGenerator { return NewTXIDGenerator() })

// NewTXID makes a TXID with the process's own generator.
func NewTXID() TXID { return processTXIDs().New() }

// New makes a TXID.
func (g *TXIDGenerator) New() TXID {
	id, _ := g.next()
	return id
}

// next returns a TXID, and 20 random bits more.
func (g *TXIDGenerator) next() (id TXID, more uint32) {
	stamp := txidStamp(g.clock.nanos())
	for !g.met.Load() {
		last, key := g.last.Load(), g.key.Load()
		if g.coarse || stamp>>txidGrowingBits > last>>txidGrowingBits {
			key = draw(g.random)
			g.key.Store(key)
		}
		random := (stamp ^ key) * goldenRatio
		high := g.after(last, stamp, random)
		if g.last.CompareAndSwap(last, high) {
			return g.rest(high, 0, random)
		}
		g.met.Store(!g.coarse)
	}
	lane := g.lanes.Get().(*txidLane)
	random := (stamp ^ lane.key) * goldenRatio
	high := g.after(lane.last, stamp, random)
	if high>>txidGrowingBits != lane.claimed>>txidLaneBits {
		high = g.claim(lane, high)
	}
	lane.last = high
	id, more = g.rest(high, lane.claimed, random)
	g.lanes.Put(lane)
	return id, more
}

// after returns the high word for a time, with random bits in place of its last bits. If
// that is not after last, it returns a random step after last. A step is at most the third
// root of the free part: tens of thousands in one millisecond still stay within it.
func (g *TXIDGenerator) after(last, stamp, random uint64) uint64 {
	random >>= 64 - txidGrowingBits
	high := stamp&^g.free | random&g.free
	if high > last {
		return high
	}
	return last + 1 + random&g.step
}

// rest adds the lane bits and the random bits after them, and returns 20 random bits more. The
// lane bits hide the number of the lane by bits that depend on all other bits and the
// secret. Two IDs that agree in the others hide it by the same bits, so two numbers never
// look the same.
func (g *TXIDGenerator) rest(high, number, random uint64) (id TXID, more uint32) {
	up, down := bits.Mul64(random^high, g.secret)
	random = up ^ down
	nonce := random & txidNonceMask
	number ^= (nonce ^ high) * g.secret >> (64 - txidLaneBits)
	return packTXID(high, uint32(number<<txidNonceBits|nonce)), uint32(random >> txidNonceBits)
}

// claim takes a lane number, not 0, for the millisecond of high. If other lanes are already
// in the next one, or if all its numbers are taken, high moves on to that.
func (g *TXIDGenerator) claim(lane *txidLane, high uint64) uint64 {
	lane.key = draw(g.random)
	for {
		last := g.claimed.Load()
		number := max(high>>txidGrowingBits<<txidLaneBits, last) + 1
		if number&(1<<txidLaneBits-1) == 0 {
			number++
		}
		if g.claimed.CompareAndSwap(last, number) {
			lane.claimed = number
			return max(high, number>>txidLaneBits<<txidGrowingBits|high&(1<<txidFreeBits-1))
		}
	}
}

// txidStamp converts nanoseconds since 1970 into milliseconds with 22 binary places. It
// multiplies by 2^83/10^6, rounded up, and drops 61 bits. That takes one instruction
// instead of two divisions. The rounding adds less than the last place, and the last
// nanosecond of a millisecond is four such places before the next millisecond. So the
// milliseconds are exact.
func txidStamp(nanos int64) uint64 {
	const factor = (1<<83 + 1_000_000 - 1) / 1_000_000
	high, low := bits.Mul64(uint64(nanos), factor)
	return high<<3 | low>>61
}

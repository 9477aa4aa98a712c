package uniqueid

import (
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
)

const (
	// txidGrowingBits is how much of the 54 bits after the time grows within a millisecond.
	txidGrowingBits = 22
	txidLaneBits    = 12
	txidNonceBits   = 20
	txidNonceMask   = 1<<txidNonceBits - 1
	// txidFreeBits is how much of the growing part is random: all but parts of a
	// millisecond of 31 ns, less than the time needed to make an ID.
	txidFreeBits = 7

	cacheLinePairs = 128 // processors fetch lines of 64 bytes in pairs
	goldenRatio    = 0x9e3779b97f4a7c15
	mixingPrime    = 0xd6e8feb86659fd93
)

// TXIDGenerator makes TXIDs. It is safe for concurrent use, never fails, never
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
// A goroutine borrows a lane while it makes an ID; the next one on the same core gets
// that lane again. So cores share nothing that they write for every ID. In its lane, every
// ID is greater than the one before: if the clock has not moved, by a random step. In each
// millisecond, a lane takes a number that no other lane has then. So nothing repeats. The
// number is hidden by bits that a secret makes of all other bits.
//
// With a clock coarser than 122 ns, lanes could not keep IDs in order. Then there is one,
// whose growing part starts at random in each millisecond and continues in random steps.
// It may run into the next millisecond before the clock does.
//
// The random bits come from a secret and a key, which is drawn anew for each lane and
// millisecond, by default from a cryptographically strong source. To guess the next ID,
// somebody must hit the moment to 31 ns, the lane and 27 bits. Still, a TXID is a name, not
// a password.
type TXIDGenerator struct {
	clock  *carriedClock
	random func() uint64
	secret uint64

	lanes sync.Pool // of *txidLane
	// claimed is the last lane number that was taken, below its millisecond.
	claimed atomic.Uint64

	coarse bool
	last   atomic.Uint64 // with a coarse clock: the high 64 bits of the last ID
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
	return &TXIDGenerator{
		clock:  newCarriedClock(s.clock),
		random: s.random,
		secret: draw(s.random) | 1,
		lanes:  sync.Pool{New: func() any { return &txidLane{key: draw(s.random)} }},
		coarse: !isFine(s.clock),
	}
}

// processTXIDs is the process's own generator, made on first use.
var processTXIDs struct {
	once sync.Once
	*TXIDGenerator
}

func makeProcessTXIDs() { processTXIDs.TXIDGenerator = NewTXIDGenerator() }

// NewTXID makes a TXID with the process's own generator.
func NewTXID() TXID {
	processTXIDs.once.Do(makeProcessTXIDs)
	high, low, _ := processTXIDs.next()
	return packTXID(high, low)
}

// New makes a TXID.
func (g *TXIDGenerator) New() TXID {
	high, low, _ := g.next()
	return packTXID(high, low)
}

// AppendNew makes a TXID and appends its 20 characters to dst.
func (g *TXIDGenerator) AppendNew(dst []byte) []byte {
	n := len(dst)
	dst = slices.Grow(dst, txidTextLen)[:n+txidTextLen]
	high, low, _ := g.next()
	putTXID((*[txidTextLen]byte)(dst[n:]), high, low)
	return dst
}

// next returns the bits of a TXID, and 20 random bits more.
func (g *TXIDGenerator) next() (high uint64, low, more uint32) {
	if g.coarse {
		return g.nextInOrder()
	}
	lane := g.lanes.Get().(*txidLane)
	nanos := g.clock.nanos()
	lane.key += goldenRatio
	random := mix(g.secret, lane.key) // after the clock, for which the processor waits
	high = growing(nanos, random, txidFreeBits)
	if high <= lane.last {
		high = lane.last + step(random, txidFreeBits)
	}
	if high>>txidGrowingBits != lane.claimed>>txidLaneBits {
		high = g.claim(lane, high)
	}
	lane.last = high
	number := lane.claimed
	g.lanes.Put(lane)
	return high, g.lowBits(number, high, random), uint32(random >> txidNonceBits)
}

// nextInOrder is next for a coarse clock.
func (g *TXIDGenerator) nextInOrder() (high uint64, low, more uint32) {
	random := draw(g.random)
	now := growing(g.clock.nanos(), random, txidGrowingBits)
	for {
		last := g.last.Load()
		high = max(now, last+step(random, txidGrowingBits))
		if g.last.CompareAndSwap(last, high) {
			return high, g.lowBits(0, high, random), uint32(random >> txidNonceBits)
		}
	}
}

// growing returns the high word for a time, with the first of the random bits in place of
// its last bits.
func growing(nanos int64, random uint64, free int) uint64 {
	mask := uint64(1)<<free - 1
	return txidStamp(nanos)&^mask | random>>(64-txidGrowingBits)&mask
}

// step returns a random step from one ID of a lane to the next, while the clock does not
// advance. It is at most the third root of the free part: tens of thousands of steps in
// one millisecond still stay within it.
func step(random uint64, free int) uint64 {
	return 1 + random>>(64-txidGrowingBits)&(1<<(free/3)-1)
}

// claim takes a lane number for the millisecond of high. If other lanes are already in the
// next one, or if all its numbers are taken, high moves on to that.
func (g *TXIDGenerator) claim(lane *txidLane, high uint64) uint64 {
	lane.key = draw(g.random)
	for {
		last := g.claimed.Load()
		lane.claimed = max(high>>txidGrowingBits<<txidLaneBits, last+1)
		if g.claimed.CompareAndSwap(last, lane.claimed) {
			return max(high, lane.claimed>>txidLaneBits<<txidGrowingBits|high&(1<<txidFreeBits-1))
		}
	}
}

// lowBits returns the lane bits and the random bits. The former hide the number of the
// lane by bits that depend on all other bits and the secret. Two IDs that agree in the
// others hide it by the same bits, so two numbers never look the same.
func (g *TXIDGenerator) lowBits(number, high, random uint64) uint32 {
	nonce := random & txidNonceMask
	number ^= (nonce ^ high) * g.secret >> (64 - txidLaneBits)
	return uint32(number<<txidNonceBits | nonce)
}

// mix derives bits that look random from a secret and a number.
func mix(secret, number uint64) uint64 {
	high, low := bits.Mul64(number^secret, goldenRatio)
	high, low = bits.Mul64((high^low)+secret, mixingPrime)
	return high ^ low
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

package uniqueid

import (
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

// A generator fills the first 22 of the 54 bits after the time with a growing part. The
// other 32 are its lane's number and random bits.
const (
	txidGrowingBits = 22
	// txidMostTicks is the finest division of a millisecond, 15 ns: less than the time
	// needed to make an ID.
	txidMostTicks = 16
	// txidLaneTicks is the clock resolution, 122 ns, that keeps the IDs of several lanes
	// in order.
	txidLaneTicks  = 13
	txidLaneBits   = 8
	txidLanes      = 1 << txidLaneBits
	txidNonceBits  = 32 - txidLaneBits
	txidNonceMask  = 1<<txidNonceBits - 1
	goldenRatio    = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio
	mixingPrime    = 0xd6e8feb86659fd93
	smallestStack  = 11  // a goroutine's stack is 2 KiB or more
	cacheLinePairs = 128 // processors fetch lines of 64 bytes in pairs
)

// TXIDGenerator makes TXIDs. It is safe for concurrent use, never fails, never
// waits and never makes the same ID twice.
//
// The time is wall time, carried forward by the monotonic clock. While the process
// runs, it never goes back, and it follows a step forward within a millisecond.
//
// The 54 bits that the format calls random are filled so that an ID can
// neither repeat in the process nor be guessed from outside:
//
//	 0                          22       30                     54
//	+---------------------------+--------+----------------------+
//	| grows within a millisecond|  lane  |        random        |
//	+---------------------------+--------+----------------------+
//
// The growing part starts with the fraction of the millisecond, at the clock's
// resolution (16 bits at most, 15 ns), and continues with random bits. So an ID made
// after another sorts after it, even between goroutines, as long as the clock has moved
// in between. If the clock cannot divide a millisecond, all of this part is random.
//
// A lane is one of 256 cells, each on its own cache lines, that remember the last
// growing part. The address of a goroutine's stack selects its lane, so two cores
// seldom meet in one. In its lane, every ID is greater than the one before. If the
// clock has not moved, it is the previous one plus a random step. Two lanes differ in
// the lane bits. So nothing repeats.
//
// The lane bits are XORed with bits that mix a secret with all preceding bits. This
// makes them as good as random in every ID. So the chance that two processes make the
// same ID is that of 54 random bits. With a clock coarser than 122 ns, there is one
// lane for all, so that IDs are still in order. It may run into the next millisecond
// before the clock does.
//
// The random part, and what the clock does not fill of the growing part, mixes the
// nanosecond and the lane with a key. The key is drawn from the source of randomness,
// by default a cryptographically strong one. It is replaced every millisecond in which
// IDs are made. While the clock stands still, random bits are drawn for each ID.
//
// So to guess the next ID from this one, somebody must hit the moment to a few
// nanoseconds, the lane, and 24 bits or more. Seeing many IDs helps only if the 64-bit
// key can be computed from them and used within the same millisecond. Still, a TXID is
// a name, not a password.
type TXIDGenerator struct {
	clock  *carriedClock
	random func() uint64
	secret uint64        // hides the lane bits
	key    atomic.Uint64 // for the random bits; changes every millisecond

	tickBits  int    // how many of the growing bits are time
	startMask uint64 // the growing bits that start with a random value in each tick
	stepMask  uint64 // the greatest step, less one, while the clock does not advance
	laneMask  uint32 // which lanes are in use

	lanes [txidLanes]txidLane
}

// txidLane remembers the high 64 bits of the last ID made in it.
type txidLane struct {
	last atomic.Uint64
	_    [cacheLinePairs - 8]byte
}

// NewTXIDGenerator makes a generator. One is enough for a process. Two generators know
// nothing of each other, and are as likely to make the same ID as two processes are.
func NewTXIDGenerator(options ...Option) *TXIDGenerator {
	s := newSettings(options)
	tickBits := resolutionBits(s.clock, txidMostTicks)
	free := txidGrowingBits - tickBits
	g := &TXIDGenerator{
		clock:     newCarriedClock(s.clock),
		random:    s.random,
		secret:    draw(s.random),
		tickBits:  tickBits,
		startMask: 1<<free - 1,
		// A third of the free bits: tens of thousands of steps in one millisecond then
		// still stay within it.
		stepMask: 1<<(free/3) - 1,
	}
	if tickBits >= txidLaneTicks {
		g.laneMask = txidLanes - 1
	}
	return g
}

// defaultTXIDs is the process's own generator, made on first use.
var defaultTXIDs struct {
	once sync.Once
	*TXIDGenerator
}

func makeDefaultTXIDs() { defaultTXIDs.TXIDGenerator = NewTXIDGenerator() }

// NewTXID makes a TXID with the process's own generator.
func NewTXID() TXID {
	defaultTXIDs.once.Do(makeDefaultTXIDs)
	return defaultTXIDs.New()
}

// New makes a TXID.
func (g *TXIDGenerator) New() TXID { return packTXID(g.next()) }

// AppendNew makes a TXID and appends its 20 characters to dst.
func (g *TXIDGenerator) AppendNew(dst []byte) []byte {
	n := len(dst)
	dst = slices.Grow(dst, txidTextLen)[:n+txidTextLen]
	high, low := g.next()
	putTXID((*[txidTextLen]byte)(dst[n:]), high, low)
	return dst
}

func (g *TXIDGenerator) next() (high uint64, low uint32) {
	nanos := g.clock.read()
	if nanos >= g.clock.due.Load() {
		nanos = g.clock.compare()
		g.key.Store(draw(g.random))
	}
	lane := stackLane() & g.laneMask
	random := mix(g.key.Load(), uint64(nanos)^uint64(lane)<<(64-txidLaneBits))
	high = txidStamp(nanos)&^g.startMask | random>>txidNonceBits&g.startMask

	cell := &g.lanes[lane%txidLanes].last
	last := cell.Load()
	if high <= last || !cell.CompareAndSwap(last, high) {
		random = draw(g.random)
		high, lane = g.step(lane, high, random>>(64-txidLaneBits)&g.stepMask+1)
	}
	return high, g.laneBits(lane, high)<<txidNonceBits | uint32(random)&txidNonceMask
}

// mix derives bits that look random from a key and a number that does not repeat.
func mix(key, number uint64) uint64 {
	high, low := bits.Mul64(number^key, goldenRatio)
	high, low = bits.Mul64((high^low)+key, mixingPrime)
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

// step is for a lane whose last ID is not before high, because the clock has not
// advanced. It continues one step after that ID. If another core is busy in the lane, it
// uses the next lane.
func (g *TXIDGenerator) step(lane uint32, high, step uint64) (uint64, uint32) {
	for ; ; lane = (lane + 1) & g.laneMask {
		cell := &g.lanes[lane%txidLanes].last
		last := cell.Load()
		next := high
		if high <= last {
			next = last + step
		}
		if cell.CompareAndSwap(last, next) {
			return next, lane
		}
	}
}

// laneBits returns the lane's number as it appears in the ID: XORed with bits that look
// random and depend on the rest of the high word and a secret. Two IDs with the same high
// word are XORed with the same bits, so two lanes never look the same.
func (g *TXIDGenerator) laneBits(lane uint32, high uint64) uint32 {
	return lane ^ uint32(mix(g.secret, high)>>(64-txidLaneBits))
}

// stackLane selects a lane for the calling goroutine: by the address of its stack, hashed
// so that neighbours get distant lanes. It only affects speed.
func stackLane() uint32 {
	var here byte
	page := uint64(uintptr(unsafe.Pointer(&here))) >> smallestStack
	return uint32(page*goldenRatio>>(64-txidLaneBits)) % txidLanes
}

package uniqueid

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// rememberedSeconds is for how many seconds back a generator remembers what it has
	// counted: 68 minutes.
	rememberedSeconds = 1 << 12
	// blockBits is the size of the counter field. A block is one round of it.
	blockBits = 16
)

// UniqueIDGenerator makes UniqueIDs of one layout and node. It is safe for
// concurrent use, never fails and never makes the same ID twice.
//
// The counter starts at random, as the document asks, increases by one with every ID,
// and wraps around. If cores make IDs at the same moment, each takes 64 numbers at a
// time, and some of these may stay unused.
//
// Apache spreads requests over many processes. Here one process does all the work, and
// 65,536 IDs may not last for a second. So every second counts in blocks of 65,536. The
// number of the block within its second, nearly always 0, is the extra counter. It is
// written
//
//   - classic: into the high 10 bits of the pid field, which no Linux pid reaches.
//     1,024 blocks make 67,108,864 IDs a second.
//   - threaded and modern: into the thread index, all of its 32 bits.
//
// If a second is full, the next one starts early.
//
// The time in an ID is when the request arrived. Requests may get their IDs in a
// different order, and a clock may be set back. So for each of the last 4,096 seconds
// (68 minutes), the generator remembers how far it has counted, and continues from
// there. For earlier arrivals, there are two cases. If the clock itself is that far
// back, it was set. The generator then forgets everything and starts every second in a
// block that it has never used. It can do so 1,023 times in the classic layout.
// Otherwise only the request is late, and it is counted in the oldest second
// remembered.
type UniqueIDGenerator struct {
	layout Layout
	clock  Clock
	base   UniqueID // with the fields that never change

	// seconds has the newest second and those before it, each at its number modulo
	// rememberedSeconds. A caller that finds its second here counts without the mutex.
	seconds [rememberedSeconds]atomic.Pointer[second]
	lanes   lanes

	mu sync.Mutex // guards what follows, and changes of seconds
	// newest is the latest second in which an ID was made.
	newest int64
	// latest is the second that was begun last. The next one continues from its counter.
	latest *second
	// floor is the first block of every second; highest is the highest block used so far.
	floor, highest uint64
}

// second is how far one second has been counted. The fields that every core writes are
// far from those that every core reads.
type second struct {
	number int64  // seconds since 1970
	begin  uint16 // the counter of its first ID
	// limit is the end of the last block that was begun. To count beyond it, the mutex is
	// needed.
	limit atomic.Uint64
	// counter is the number of IDs, including those of the blocks below floor.
	counter counter
}

// NewUniqueIDGenerator makes a generator. A generator of the modern layout draws its
// own random root and needs no node. For the classic layout the node's pid must be
// below 2^22.
func NewUniqueIDGenerator(layout Layout, node Node, options ...Option) (*UniqueIDGenerator, error) {
	if int(layout) >= len(layouts) {
		return nil, fmt.Errorf("making a unique_id generator: unknown layout %d", layout)
	}
	if layout == Classic && !node.random && node.pid>>pidBits != 0 {
		return nil, fmt.Errorf("making a unique_id generator: pid %d does not fit in %d bits, which the classic layout needs", node.pid, pidBits)
	}
	s := newSettings(options)
	g := &UniqueIDGenerator{
		layout: layout,
		clock:  s.clock,
		base:   UniqueID{layout: layout},
		latest: &second{begin: uint16(draw(s.random))},
		newest: -1,
	}
	if layout == Modern {
		binary.BigEndian.PutUint64(g.base.data[4:], draw(s.random))
		binary.BigEndian.PutUint16(g.base.data[12:], uint16(draw(s.random)))
	} else {
		copy(g.base.data[4:12], node.field[:])
	}
	return g, nil
}

// New makes the ID of a request that arrived at the given time. A time before
// 1970 counts as 1970.
func (g *UniqueIDGenerator) New(arrival time.Time) UniqueID {
	number, block, counter := g.count(max(arrival.Unix(), 0))
	id := g.base
	binary.BigEndian.PutUint32(id.data[0:], uint32(number))
	switch g.layout {
	case Classic:
		// Added and not overwritten, so that a random node keeps all its bits.
		pid := binary.BigEndian.Uint32(id.data[8:]) + uint32(block)<<pidBits
		binary.BigEndian.PutUint32(id.data[8:], pid)
		binary.BigEndian.PutUint16(id.data[12:], counter)
	case Threaded:
		binary.BigEndian.PutUint16(id.data[12:], counter)
		binary.BigEndian.PutUint32(id.data[14:], uint32(block))
	case Modern:
		binary.BigEndian.PutUint16(id.data[14:], counter)
		binary.BigEndian.PutUint32(id.data[16:], uint32(block))
	}
	return id
}

// AppendNew makes the ID of a request that arrived at the given time, and appends
// its text to dst.
func (g *UniqueIDGenerator) AppendNew(dst []byte, arrival time.Time) []byte {
	id := g.New(arrival)
	return layouts[g.layout].encoding.AppendEncode(dst, id.bytes())
}

// count takes the next place in the second of the arrival, or in the first later second
// that is not full.
func (g *UniqueIDGenerator) count(number int64) (int64, uint64, uint16) {
	s := g.seconds[number%rememberedSeconds].Load()
	if s == nil || s.number != number {
		return g.countOn(number)
	}
	place := g.lanes.take(&s.counter)
	if place < s.limit.Load() || g.begin(s, place) {
		return s.at(place)
	}
	return g.countOn(number)
}

// begin begins the block of a place in a second. It returns false if the second is full
// or was forgotten in the meantime.
func (g *UniqueIDGenerator) begin(s *second, place uint64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.seconds[s.number%rememberedSeconds].Load() == s && g.beginLocked(s, place)
}

func (g *UniqueIDGenerator) beginLocked(s *second, place uint64) bool {
	block := place >> blockBits
	if block >= g.blocks() {
		return false
	}
	g.highest = max(g.highest, block)
	s.limit.Store(max(s.limit.Load(), (block+1)<<blockBits))
	return true
}

// countOn is count for a second that is new or full.
func (g *UniqueIDGenerator) countOn(number int64) (int64, uint64, uint16) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if number <= g.newest-rememberedSeconds {
		number = g.earlyLocked(number)
	}
	for {
		s := g.secondLocked(number)
		if place := g.lanes.take(&s.counter); g.beginLocked(s, place) {
			return s.at(place)
		}
		number++
	}
}

// at returns the second, the block and the counter of a place.
func (s *second) at(place uint64) (number int64, block uint64, counter uint16) {
	return s.number, place >> blockBits, s.begin + uint16(place)
}

// secondLocked returns the entry of a second that is not before the oldest.
func (g *UniqueIDGenerator) secondLocked(number int64) *second {
	g.newest = max(g.newest, number)
	entry := &g.seconds[number%rememberedSeconds]
	if s := entry.Load(); s != nil && s.number == number {
		return s
	}
	s := &second{number: number, begin: g.latest.begin + uint16(g.latest.counter.made.Load())}
	s.counter.made.Store(g.floor << blockBits)
	s.limit.Store(g.floor << blockBits)
	g.latest = s
	entry.Store(s)
	return s
}

// earlyLocked returns the second in which to count an arrival before the oldest second.
// That is its own second, if the clock was set back and there are blocks left to start
// anew. Otherwise, it is the oldest second.
func (g *UniqueIDGenerator) earlyLocked(number int64) int64 {
	oldest := g.newest - rememberedSeconds + 1
	wasSet := g.clock.Wall().Unix() < oldest
	if !wasSet || g.highest+1 >= g.blocks() {
		return oldest
	}
	g.floor = g.highest + 1
	g.newest = number
	for i := range g.seconds {
		g.seconds[i].Store(nil)
	}
	return number
}

// blocks is how many blocks the extra counter can distinguish.
func (g *UniqueIDGenerator) blocks() uint64 {
	if g.layout == Classic {
		return 1 << (32 - pidBits)
	}
	return 1 << 32
}

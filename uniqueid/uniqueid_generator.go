package uniqueid

import (
	"encoding/binary"
	"errors"
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
	// shareLen is how many numbers a core takes at once from a contended counter.
	shareLen = 64
)

// UniqueIDGenerator makes UniqueIDs of one layout and node. It is safe for
// concurrent use, never fails and never makes the same ID twice. Make one for a process:
// two with the same node can repeat each other's IDs.
//
// The counter starts at random, increases by one with every ID, and wraps around. If cores
// make IDs at the same moment, each takes 64 numbers at a time, and some of these may stay
// unused.
//
// Every second counts in blocks of 65,536. The number of the block, nearly always 0, is the
// extra counter: in the classic layout the high 10 bits of the pid field, which no Linux pid
// reaches, in the others the thread index. If a second is full, the next one starts early.
//
// The time in an ID is when the request arrived. Requests may get their IDs in a
// different order, and a clock may be set back. So for each of the last 4,096 seconds
// (68 minutes), the generator remembers how far it has counted, and continues from
// there. An arrival before that counts in the oldest of these seconds.
type UniqueIDGenerator struct {
	base UniqueID // with the fields that never change, such as address and pid; node.go has these

	// seconds has the newest second and those before it, each at its number modulo
	// rememberedSeconds. A caller that finds its second here counts without the mutex. A
	// second that was replaced never returns.
	seconds [rememberedSeconds]atomic.Pointer[second]
	shares  sync.Pool // of *share, one for each core

	mu     sync.Mutex // guards what follows, and changes of seconds
	newest int64      // the latest second in which an ID was made
	// latest is the second that was begun last. The next one continues from its counter.
	latest *second
}

// second is how far one second has been counted.
type second struct {
	number int64  // seconds since 1970
	begin  uint16 // the counter of its first ID
	// contended says that cores have met at taken.
	contended atomic.Bool

	_     [cacheLinePairs]byte
	taken atomic.Uint64 // how many numbers cores have taken
	_     [cacheLinePairs]byte
}

// share is a range of numbers that one core has taken from a second.
type share struct {
	of        *second
	next, end uint64
	_         [cacheLinePairs - 24]byte
}

// NewUniqueIDGenerator makes a generator. A generator of the modern layout draws its
// own random root and needs no node. The others need one that is not zero, such as that of
// [AutoNode]. For the classic layout the node's pid must be below 2^22.
func NewUniqueIDGenerator(layout Layout, node Node, options ...Option) (*UniqueIDGenerator, error) {
	if int(layout) >= len(layouts) {
		return nil, fmt.Errorf("making a unique_id generator: unknown layout %d", layout)
	}
	if layout != Modern && node == (Node{}) {
		return nil, errors.New("making a unique_id generator: the node is missing: " +
			"make one with AutoNode, FixedNode or RandomNode")
	}
	if layout == Classic && !node.random && node.pid()>>pidBits != 0 {
		return nil, fmt.Errorf("making a unique_id generator: pid %d does not fit in %d bits, "+
			"which the classic layout needs", node.pid(), pidBits)
	}
	s := newSettings(options)
	g := &UniqueIDGenerator{
		base:   UniqueID{layout: layout},
		latest: &second{begin: uint16(draw(s.random))},
	}
	g.shares.New = func() any { return new(share) }
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
	s, place := g.count(max(arrival.Unix(), 0))
	block := uint32(place >> blockBits)
	id := g.base
	binary.BigEndian.PutUint32(id.data[0:], uint32(s.number))
	at := layouts[g.base.layout].counter
	binary.BigEndian.PutUint16(id.data[at:], s.begin+uint16(place))
	if g.base.layout == Classic {
		// Added and not overwritten, so that a random node keeps all its bits.
		pid := binary.BigEndian.Uint32(id.data[8:]) + block<<pidBits
		binary.BigEndian.PutUint32(id.data[8:], pid)
	} else {
		binary.BigEndian.PutUint32(id.data[at+2:], block)
	}
	return id
}

// count takes the next place in a second, or in the first later second that is not full.
func (g *UniqueIDGenerator) count(number int64) (*second, uint64) {
	s := g.seconds[number%rememberedSeconds].Load()
	if s == nil || s.number != number {
		s = g.begun(number)
	}
	place := g.take(s)
	for place>>(blockBits+layouts[g.base.layout].extra) > 0 {
		s = g.begun(s.number + 1)
		place = g.take(s)
	}
	return s, place
}

// take takes the next number of a second. Once a core has found another one at the counter,
// all take shares.
func (g *UniqueIDGenerator) take(s *second) uint64 {
	if !s.contended.Load() {
		number := s.taken.Load()
		if s.taken.CompareAndSwap(number, number+1) {
			return number
		}
		s.contended.Store(true)
	}
	mine := g.shares.Get().(*share)
	number := mine.take(s)
	g.shares.Put(mine)
	return number
}

// take takes the next number of a share. A share in another second is given up.
func (m *share) take(s *second) uint64 {
	if m.of != s || m.next == m.end {
		m.of, m.end = s, s.taken.Add(shareLen)
		m.next = m.end - shareLen
	}
	m.next++
	return m.next - 1
}

// begun returns the second with a number, or the oldest one if that is later.
func (g *UniqueIDGenerator) begun(number int64) *second {
	g.mu.Lock()
	defer g.mu.Unlock()
	number = max(number, g.newest-rememberedSeconds+1)
	entry := &g.seconds[number%rememberedSeconds]
	if s := entry.Load(); s != nil && s.number == number {
		return s
	}
	s := &second{number: number, begin: g.latest.begin + uint16(g.latest.taken.Load())}
	entry.Store(s)
	g.latest = s
	g.newest = max(g.newest, number)
	return s
}

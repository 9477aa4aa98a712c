package uniqueid

import "sync/atomic"

const (
	// counterLanes is for how many goroutines at once counters have room.
	counterLanes = 64
	// shareLen is how many numbers a lane takes at once from a counter that
	// others count on at the same moment.
	shareLen = 64
)

// counter counts from 0. It never comes round.
type counter struct {
	_    [cacheLinePairs]byte
	made atomic.Uint64
	_    [cacheLinePairs]byte
}

// lanes give out the numbers of counters, each number once.
//
// As long as one goroutine at a time asks, the numbers come in order, without
// gaps. Two cores that count at the same moment would send the counter's memory
// back and forth for every number. So a goroutine that finds another at the counter
// takes 64 numbers for its lane, which is the place of its stack in memory, and
// counts these by itself. What is left of them when the counter is given up is
// lost.
type lanes [counterLanes]struct {
	share atomic.Pointer[share]
	_     [cacheLinePairs - 8]byte
}

// share is numbers in a row that one lane has taken from a counter.
type share struct {
	of   *counter
	end  uint64
	next atomic.Uint64
	_    [cacheLinePairs - 24]byte
}

// take takes a number of the counter.
func (l *lanes) take(c *counter) uint64 { return l.takeIn(stackLane()%counterLanes, c) }

func (l *lanes) takeIn(lane uint32, c *counter) uint64 {
	cell := &l[lane].share
	if s := cell.Load(); s != nil {
		if place, ok := s.take(c); ok {
			return place
		}
		cell.CompareAndSwap(s, nil)
	}
	place := c.made.Load()
	if c.made.CompareAndSwap(place, place+1) {
		return place
	}
	end := c.made.Add(shareLen)
	s := &share{of: c, end: end}
	s.next.Store(end - shareLen + 1)
	cell.Store(s)
	return end - shareLen
}

// take takes a number of the share, if it is one of the counter and has any left.
func (s *share) take(c *counter) (uint64, bool) {
	if s.of != c {
		return 0, false
	}
	number := s.next.Add(1) - 1
	return number, number < s.end
}

package uniqueid

import (
	"sync/atomic"
	"time"
)

const (
	// counterLanes is for how many goroutines at once counters have room.
	counterLanes = 64
	// shareLen is how many numbers a lane takes at once from a counter that
	// others count on at the same moment.
	shareLen = 64
	// busyShare is how soon a share is used up where others still count.
	busyShare = time.Millisecond
)

// counter counts from 0. It never comes round.
type counter struct {
	_    [cacheLinePairs]byte
	made atomic.Uint64
	_    [cacheLinePairs]byte
}

// lanes give out the numbers of counters, each number once.
//
// As long as one goroutine at a time has asked, the numbers come in order, without
// gaps. Two cores that count at the same moment would send the counter's memory
// back and forth for every number. So a goroutine that finds another at the counter
// takes 64 numbers for its lane, which is the place of its stack in memory, and
// counts these by itself. If they last for less than a millisecond, it takes 64
// more. Numbers that are left of a share come later than greater ones, and are lost
// when the counter is given up, or when the lane takes another share meanwhile.
type lanes [counterLanes]lane

type lane struct {
	share atomic.Pointer[share]
	_     [cacheLinePairs - 8]byte
}

// share is numbers in a row that one lane has taken from a counter.
type share struct {
	of    *counter
	end   uint64
	taken time.Duration // after laneClock
	next  atomic.Uint64
	_     [cacheLinePairs - 32]byte
}

// laneClock is when shares count from.
var laneClock = time.Now()

// take takes a number of the counter.
func (l *lanes) take(c *counter) uint64 { return l[stackLane()%counterLanes].take(c) }

func (l *lane) take(c *counter) uint64 {
	if s := l.share.Load(); s != nil {
		if number, ok := s.take(c); ok {
			return number
		}
		if s.of == c && time.Since(laneClock)-s.taken < busyShare {
			return l.takeShare(c)
		}
		l.share.CompareAndSwap(s, nil)
	}
	number := c.made.Load()
	if c.made.CompareAndSwap(number, number+1) {
		return number
	}
	return l.takeShare(c)
}

// takeShare takes a share of the counter, and of this the first number.
func (l *lane) takeShare(c *counter) uint64 {
	end := c.made.Add(shareLen)
	s := &share{of: c, end: end, taken: time.Since(laneClock)}
	s.next.Store(end - shareLen + 1)
	l.share.Store(s)
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

package uniqueid

import (
	"sync/atomic"
	"time"
)

const (
	// counterLanes is the number of goroutines that can count at once without contention.
	counterLanes = 64
	// shareLen is how many numbers a lane takes at once from a contended counter.
	shareLen = 64
	// busyShare is how soon a share must be used up to count as a sign of contention.
	busyShare = time.Millisecond
)

// counter counts from 0. It never wraps around.
type counter struct {
	_    [cacheLinePairs]byte
	made atomic.Uint64
	_    [cacheLinePairs]byte
}

// lanes issue the numbers of counters, each number once.
//
// While one goroutine at a time asks, the numbers come in order and without gaps. Two
// cores that count at the same moment would pass the counter's cache line back and forth
// for every number. So a goroutine that finds another one at the counter takes 64 numbers
// for its lane, and counts these by itself. The address of its stack selects the lane. If
// they last for less than a millisecond, it takes 64 more. The rest of a share is issued
// after greater numbers. It is lost when the counter is given up, or when the lane takes
// another share.
type lanes [counterLanes]lane

type lane struct {
	share atomic.Pointer[share]
	_     [cacheLinePairs - 8]byte
}

// share is a range of numbers that one lane has taken from a counter.
type share struct {
	of    *counter
	end   uint64
	taken time.Duration // after laneClock
	next  atomic.Uint64
	_     [cacheLinePairs - 32]byte
}

// laneClock is the start of the time for shares.
var laneClock = time.Now()

// take takes a number from the counter.
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

// takeShare takes a share of the counter, and the first number of that share.
func (l *lane) takeShare(c *counter) uint64 {
	end := c.made.Add(shareLen)
	s := &share{of: c, end: end, taken: time.Since(laneClock)}
	s.next.Store(end - shareLen + 1)
	l.share.Store(s)
	return end - shareLen
}

// take takes a number of the share, if the share belongs to the counter and is not used
// up.
func (s *share) take(c *counter) (uint64, bool) {
	if s.of != c {
		return 0, false
	}
	number := s.next.Add(1) - 1
	return number, number < s.end
}

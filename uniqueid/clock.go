package uniqueid

import (
	"sync/atomic"
	"time"
)

// Clock is what a generator reads the time from. The default is the system's clock;
// tests pass their own with [WithClock].
//
// Both methods are called from several goroutines at once.
type Clock interface {
	// Wall returns the time of day. It may step in either direction, as the system's
	// does when somebody sets it.
	Wall() time.Time
	// Monotonic returns the time since some fixed moment. It must never go back.
	Monotonic() time.Duration
}

// systemClock is the machine's clock. The monotonic time is read as the time since start:
// that reads one clock, whereas time.Now reads two.
type systemClock struct{ start time.Time }

func (*systemClock) Wall() time.Time            { return time.Now() }
func (c *systemClock) Monotonic() time.Duration { return time.Since(c.start) }

// carriedClock is wall time carried forward by the monotonic clock. It never goes back
// while the process runs: a wall clock that steps back is ignored until it has caught up.
// If that steps forward, carriedClock follows.
//
// Its state is written only then, and once a millisecond, so it stays in every core's
// cache.
type carriedClock struct {
	clock  Clock
	system *systemClock // clock, if it is the system's: nanos calls it directly

	// offset is the difference between the time since 1970 and the monotonic time, in
	// nanoseconds. It only grows.
	offset atomic.Int64
	// due is when to compare with the wall clock again, in nanoseconds since 1970 by this
	// clock.
	due atomic.Int64
}

// newCarriedClock carries the time of clock forward, or of the system's clock if that is nil.
func newCarriedClock(clock Clock) *carriedClock {
	c := &carriedClock{clock: clock}
	if clock == nil {
		c.system = &systemClock{time.Now()}
		c.clock = c.system
	}
	wall := max(c.clock.Wall().UnixNano(), 0)
	c.offset.Store(wall - int64(c.clock.Monotonic()))
	return c
}

// nanos returns the time since 1970 in nanoseconds.
func (c *carriedClock) nanos() int64 {
	var mono time.Duration
	if c.system != nil {
		mono = time.Since(c.system.start)
	} else {
		mono = c.clock.Monotonic()
	}
	nanos := int64(mono) + c.offset.Load()
	if nanos >= c.due.Load() {
		return c.compare()
	}
	return nanos
}

// compare follows a wall clock that has stepped forward. It reads the wall clock first. A
// pause between the two readings then makes the offset too small, which is ignored. It
// never makes it too large, which would last.
func (c *carriedClock) compare() int64 {
	wall := max(c.clock.Wall().UnixNano(), 0)
	mono := int64(c.clock.Monotonic())
	offset := c.offset.Load()
	for offset < wall-mono && !c.offset.CompareAndSwap(offset, wall-mono) {
		offset = c.offset.Load()
	}
	nanos := mono + max(offset, wall-mono)
	c.due.Store(nanos + int64(time.Millisecond))
	return nanos
}

// isFine reports whether a clock advances in steps of at most 122 ns, less than a
// goroutine needs to pass an ID to another.
func isFine(clock Clock) bool {
	const finest = 122 * time.Nanosecond
	last := clock.Monotonic()
	for range 64 {
		next := clock.Monotonic()
		if next > last && next-last <= finest {
			return true
		}
		last = next
	}
	return false
}

package uniqueid

import (
	"sync/atomic"
	"time"
)

// clock is wall time carried forward by the monotonic clock. It never goes back while the
// process runs: a wall clock that steps back is ignored until it has caught up. If that
// steps forward, clock follows.
//
// Its state is written only then, and once a millisecond, so it stays in every core's
// cache.
type clock struct {
	// start is when the clock was made. The monotonic time is the time since then: that
	// reads one of the system's clocks, whereas time.Now reads two.
	start time.Time
	// fake is the clock of a test, nil for the system's.
	fake fake

	// offset is the difference between the time since 1970 and the monotonic time, in
	// nanoseconds. It only grows.
	offset atomic.Int64
	// due is when to compare with the wall clock again, in nanoseconds since 1970 by this
	// clock.
	due atomic.Int64
}

// fake is a clock of a test, which several goroutines may read at once.
type fake interface {
	Wall() time.Time          // may step in either direction
	Monotonic() time.Duration // since some moment; never goes back
}

func newClock(fake fake) *clock {
	c := &clock{start: time.Now(), fake: fake}
	c.offset.Store(c.wall() - c.monotonic())
	return c
}

// wall returns the time of day in nanoseconds since 1970.
func (c *clock) wall() int64 {
	if c.fake != nil {
		return max(c.fake.Wall().UnixNano(), 0)
	}
	return max(time.Now().UnixNano(), 0)
}

// monotonic returns the monotonic time in nanoseconds.
func (c *clock) monotonic() int64 {
	if c.fake != nil {
		return int64(c.fake.Monotonic())
	}
	return int64(time.Since(c.start))
}

// nanos returns the time since 1970 in nanoseconds.
func (c *clock) nanos() int64 {
	mono := int64(time.Since(c.start)) // called directly, because this is on the path of every ID
	if c.fake != nil {
		mono = c.monotonic()
	}
	nanos := mono + c.offset.Load()
	if nanos >= c.due.Load() {
		return c.compare()
	}
	return nanos
}

// compare follows a wall clock that has stepped forward. It reads the wall clock first. A
// pause between the two readings then makes the offset too small, which is ignored. It
// never makes it too large, which would last.
func (c *clock) compare() int64 {
	wall := c.wall()
	mono := c.monotonic()
	offset := c.offset.Load()
	for offset < wall-mono && !c.offset.CompareAndSwap(offset, wall-mono) {
		offset = c.offset.Load()
	}
	nanos := mono + max(offset, wall-mono)
	c.due.Store(nanos + int64(time.Millisecond))
	return nanos
}

// isFine reports whether the clock advances in steps of at most 122 ns, less than a
// goroutine needs to pass an ID to another.
func (c *clock) isFine() bool {
	const finest = 122
	last := c.monotonic()
	for range 64 {
		next := c.monotonic()
		if next > last && next-last <= finest {
			return true
		}
		last = next
	}
	return false
}

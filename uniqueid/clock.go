package uniqueid

import (
	"math/bits"
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
// while the process runs. If the wall clock steps back, it is ignored until it has caught
// up. If it steps forward, carriedClock follows.
//
// Every core reads its state. It is written only when the wall clock steps forward, and
// once a millisecond. So it stays in every core's cache.
type carriedClock struct {
	clock  Clock
	system *systemClock // clock, if it is the system's: calls through it are direct

	// offset is the difference between the time since 1970 and the monotonic time, in
	// nanoseconds. It only grows.
	offset atomic.Int64
	// due is when to compare with the wall clock again, in nanoseconds since 1970 by this
	// clock.
	due atomic.Int64
}

func newCarriedClock(clock Clock) *carriedClock {
	c := &carriedClock{clock: clock}
	c.system, _ = clock.(*systemClock)
	wall := max(clock.Wall().UnixNano(), 0)
	c.offset.Store(wall - int64(clock.Monotonic()))
	return c
}

func (c *carriedClock) monotonic() time.Duration {
	if c.system != nil {
		return time.Since(c.system.start)
	}
	return c.clock.Monotonic()
}

// nanos returns the time since 1970 in nanoseconds.
func (c *carriedClock) nanos() int64 {
	nanos := c.read()
	if nanos >= c.due.Load() {
		return c.compare()
	}
	return nanos
}

// read returns the time since 1970 in nanoseconds. If it is not before due, the caller
// must use compare instead.
func (c *carriedClock) read() int64 { return int64(c.monotonic()) + c.offset.Load() }

// compare follows a wall clock that has stepped forward. It reads the wall clock first. A
// pause between the two readings then makes the offset too small, which is ignored. It
// never makes it too large, which would last.
func (c *carriedClock) compare() int64 {
	wall := max(c.clock.Wall().UnixNano(), 0)
	mono := int64(c.monotonic())
	offset := c.offset.Load()
	for offset < wall-mono && !c.offset.CompareAndSwap(offset, wall-mono) {
		offset = c.offset.Load()
	}
	nanos := mono + max(offset, wall-mono)
	c.due.Store(nanos + int64(time.Millisecond))
	return nanos
}

// clockSteps is how often resolutionBits reads the clock to see it advance.
const clockSteps = 64

// resolutionBits returns into how many equal parts the clock can divide a millisecond, as
// a power of two. It is at most limit, and 0 if the clock does not advance while it is
// watched.
func resolutionBits(clock Clock, limit int) int {
	step := time.Millisecond
	last := clock.Monotonic()
	for range clockSteps {
		next := clock.Monotonic()
		if next > last {
			step = min(step, max(next-last, 1))
		}
		last = next
	}
	return min(bits.Len64(uint64(time.Millisecond/step))-1, limit)
}

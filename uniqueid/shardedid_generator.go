package uniqueid

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// ShardedIDGenerator makes ShardedIDs. It is safe for concurrent use and never uses a
// microsecond twice, like PHP's uniqid: if the microsecond is taken, it waits for the
// next. So it makes at most a million IDs a second. The time never goes back while the
// process runs. With a clock that stands still for up to 16 ms, as on Windows, the time of
// an ID may be that much ahead.
type ShardedIDGenerator struct {
	shards uint32
	random func() uint64
	micros *microseconds
}

// NewShardedIDGenerator makes a generator for 1 to [MaxShards] shards. All generators
// of a process that use the system's clock share the microseconds, so that together
// they never use one twice either.
func NewShardedIDGenerator(shards int, options ...Option) (*ShardedIDGenerator, error) {
	if err := checkShards(shards); err != nil {
		return nil, fmt.Errorf("making a sharded_id generator: %w", err)
	}
	s := newSettings(options)
	m := processMicros()
	if _, ok := s.clock.(*systemClock); !ok {
		m = newMicroseconds(s.clock)
	}
	return &ShardedIDGenerator{uint32(shards), s.random, m}, nil
}

// New makes a ShardedID.
func (g *ShardedIDGenerator) New() ShardedID {
	return makeShardedID(g.micros.take(), uint16(draw(g.random)), g.shards)
}

// AppendNew makes a ShardedID and appends its text to dst.
func (g *ShardedIDGenerator) AppendNew(dst []byte) []byte { return g.New().append(dst) }

// coarseTick is how long a coarse clock may stand still, in microseconds.
const coarseTick = 16_000

// microseconds are the microseconds of a clock.
type microseconds struct {
	clock *carriedClock
	last  atomic.Int64 // the last one that was used
	ahead int64        // how many it may be ahead of the clock
}

func newMicroseconds(clock Clock) *microseconds {
	m := &microseconds{clock: newCarriedClock(clock)}
	if !isFine(clock) {
		m.ahead = coarseTick
	}
	return m
}

// processMicros returns the microseconds that all generators with the system's clock
// share.
var processMicros = sync.OnceValue(func() *microseconds { return newMicroseconds(newSystemClock()) })

// take takes a microsecond since 1970 that no other ID uses.
func (m *microseconds) take() int64 {
	for {
		now := m.clock.nanos() / int64(time.Microsecond)
		last := m.last.Load()
		if next := max(now, last+1); next <= now+m.ahead && m.last.CompareAndSwap(last, next) {
			return next
		}
		runtime.Gosched()
	}
}

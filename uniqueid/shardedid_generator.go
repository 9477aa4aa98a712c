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
// process runs. On Windows, whose clock stands still for up to 16 ms, the time of an ID
// may be that much ahead.
type ShardedIDGenerator struct {
	shards uint32
	random func() uint64
	clock  *carriedClock
	last   *atomic.Int64 // the microsecond of the last ID
	ahead  int64         // how many microseconds it may be ahead of the clock
}

// NewShardedIDGenerator makes a generator for 1 to [MaxShards] shards. All generators
// of a process that use the system's clock share the microseconds, so that together
// they never use one twice either.
func NewShardedIDGenerator(shards int, options ...Option) (*ShardedIDGenerator, error) {
	if err := checkShards(shards); err != nil {
		return nil, fmt.Errorf("making a sharded_id generator: %w", err)
	}
	s := newSettings(options)
	g := &ShardedIDGenerator{shards: uint32(shards), random: s.random}
	if _, ok := s.clock.(*systemClock); ok {
		process := processMicros()
		g.ahead = systemTick.Microseconds()
		g.clock, g.last = process.clock, &process.last
		return g, nil
	}
	g.clock, g.last = newCarriedClock(s.clock), new(atomic.Int64)
	return g, nil
}

// microseconds are the microseconds of one clock, with the last one that was used.
type microseconds struct {
	clock *carriedClock
	last  atomic.Int64
}

var processMicros = sync.OnceValue(func() *microseconds {
	return &microseconds{clock: newCarriedClock(&systemClock{start: time.Now()})}
})

// New makes a ShardedID.
func (g *ShardedIDGenerator) New() ShardedID {
	return makeShardedID(g.micros(), uint16(draw(g.random)), g.shards)
}

// AppendNew makes a ShardedID and appends its text to dst.
func (g *ShardedIDGenerator) AppendNew(dst []byte) []byte { return g.New().append(dst) }

// micros takes a microsecond since 1970 that no other ID uses.
func (g *ShardedIDGenerator) micros() int64 {
	for {
		now := g.clock.nanos() / int64(time.Microsecond)
		last := g.last.Load()
		if next := max(now, last+1); next <= now+g.ahead && g.last.CompareAndSwap(last, next) {
			return next
		}
		runtime.Gosched()
	}
}

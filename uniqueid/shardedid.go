package uniqueid

import (
	"cmp"
	"database/sql/driver"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	shardedTailLen = 17 // random and time, without the shard
	// MaxShards is the greatest useful number of shards: the shard comes from the
	// microseconds of a second.
	MaxShards = 1_000_000
	// shardedMaxText is the length with a shard of six digits.
	shardedMaxText = 6 + shardedTailLen
)

// ShardedID is an ID that carries the number of its object's shard, as
// described in "UUID generation with shard numbers in PHP". The shard is the microseconds
// modulo the number of shards. The last 13 characters are what PHP's uniqid returns. The
// last 17 are the ID and everything before them is the shard, so an ID for any number of
// shards can be parsed. The zero ShardedID is valid: shard 0, 1970.
type ShardedID struct {
	shard  uint32
	random uint16
	micros int64 // since 1970, less than 2^32 seconds
}

func makeShardedID(micros int64, random uint16, shards uint32) ShardedID {
	return ShardedID{uint32(micros%1e6) % shards, random, micros % (1e6 << 32)}
}

func checkShards(shards int) error {
	if shards < 1 || shards > MaxShards {
		return fmt.Errorf("number of shards is %d: want 1 to %d", shards, MaxShards)
	}
	return nil
}

// ParseShardedID reads a ShardedID of any number of shards. The error is a
// [*ParseError].
func ParseShardedID(text string) (ShardedID, error) {
	r := reader{scheme: "sharded_id", text: text}
	r.length(len(text) > shardedTailLen && len(text) <= shardedMaxText, "18 to 23 characters")
	split := len(text) - shardedTailLen
	shard := r.digits(0, split, "0123456789", "one of 0-9 in the shard")
	random := r.digits(split, split+4, hexDigits, hexWant)
	seconds := r.digits(split+4, split+12, hexDigits, hexWant)
	rest := r.digits(split+12, len(text), hexDigits, hexWant)
	r.character(split < 2 || text[0] != '0', 0, "a shard without leading zeros")
	if rest >= 1e6 {
		r.fail(split+12, "microseconds below f4240 (1000000)", fmt.Sprintf("%05x (%d)", rest, rest))
	}
	// The remainder of a division is the dividend, or less than half of it.
	if shard != rest && shard >= rest-min(shard, rest) {
		r.fail(0, fmt.Sprintf("a shard that %d microseconds can give", rest), strconv.FormatUint(shard, 10))
	}
	return result(r, ShardedID{uint32(shard), uint16(random), int64(seconds*1e6 + rest)})
}

// ParseShardedIDOf reads a ShardedID made for the given number of shards and
// checks its shard. The error about the text is a [*ParseError].
func ParseShardedIDOf(text string, shards int) (ShardedID, error) {
	if err := checkShards(shards); err != nil {
		return ShardedID{}, err
	}
	id, err := ParseShardedID(text)
	if err != nil {
		return ShardedID{}, err
	}
	micros := uint32(id.micros % 1e6)
	if want := micros % uint32(shards); id.shard != want {
		return ShardedID{}, &ParseError{"sharded_id", text, 0,
			fmt.Sprintf("shard %d, which is %d microseconds modulo %d shards", want, micros, shards), strconv.Itoa(int(id.shard))}
	}
	return id, nil
}

// Shard returns the number of the shard, from 0.
func (id ShardedID) Shard() int { return int(id.shard) }

// Random returns the four random hexadecimal digits.
func (id ShardedID) Random() uint16 { return id.random }

// Time returns when the ID was made, in UTC, to the microsecond. Its seconds are a
// field of 32 bits: it ends in the year 2106.
func (id ShardedID) Time() time.Time { return time.UnixMicro(id.micros).UTC() }

// Compare returns -1, 0 or 1, by the order of times, then of texts.
func (id ShardedID) Compare(other ShardedID) int {
	return cmp.Or(cmp.Compare(id.micros, other.micros), cmp.Compare(id.String(), other.String()))
}

// String returns the ID's text of 18 to 23 characters.
func (id ShardedID) String() string {
	return fmt.Sprintf("%d%04x%08x%05x", id.shard, id.random, id.micros/1e6, id.micros%1e6)
}

// AppendText appends the ID's text to dst. It never fails.
func (id ShardedID) AppendText(dst []byte) ([]byte, error) { return append(dst, id.String()...), nil }

var shardedIDForm = form[ShardedID]{scheme: "sharded_id", parse: ParseShardedID}

// MarshalText returns the ID's text. It never fails.
func (id ShardedID) MarshalText() ([]byte, error) { return id.AppendText(nil) }

// UnmarshalText reads what MarshalText wrote. The error is a [*ParseError].
func (id *ShardedID) UnmarshalText(text []byte) error { return shardedIDForm.unmarshalText(id, text) }

// Value returns the ID for database/sql, as its text.
func (id ShardedID) Value() (driver.Value, error) { return value(id) }

// Scan reads the ID from database/sql, as its text.
func (id *ShardedID) Scan(src any) error { return shardedIDForm.scan(id, src) }

func decodeShardedID(text string) (Decoded, error) {
	id, err := ParseShardedID(text)
	return Decoded{Time: id.Time(), Fields: map[string]any{
		"shard": uint64(id.Shard()), "random": fmt.Sprintf("%04x", id.Random()),
	}}, err
}

// ShardedIDGenerator makes ShardedIDs. It is safe for concurrent use and never uses a
// microsecond twice, like PHP's uniqid. The time never goes back while the process runs.
// If more than one ID a microsecond is made, or if the clock is coarse, as on Windows, it
// may be 16 ms ahead; then it waits.
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
	if s.clock != nil {
		m = &microseconds{clock: newCarriedClock(s.clock)}
	}
	return &ShardedIDGenerator{uint32(shards), s.random, m}, nil
}

// New makes a ShardedID.
func (g *ShardedIDGenerator) New() ShardedID {
	return makeShardedID(g.micros.take(), uint16(draw(g.random)), g.shards)
}

// mostAhead is how many microseconds an ID may be ahead of the clock: a coarse one stands
// still for so long.
const mostAhead = 16_000

// microseconds are the microseconds of a clock.
type microseconds struct {
	clock *carriedClock
	last  atomic.Int64 // the last one that was used
}

// processMicros returns the microseconds that all generators with the system's clock
// share.
var processMicros = sync.OnceValue(func() *microseconds { return &microseconds{clock: newCarriedClock(nil)} })

// take takes a microsecond since 1970 that no other ID uses.
func (m *microseconds) take() int64 {
	for {
		now := m.clock.nanos() / int64(time.Microsecond)
		last := m.last.Load()
		if next := max(now, last+1); next <= now+mostAhead && m.last.CompareAndSwap(last, next) {
			return next
		}
		runtime.Gosched()
	}
}

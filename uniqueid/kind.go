package uniqueid

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// kinds is the table of all kinds of IDs. [Decode], the command caddy ids and the
// placeholders of the handler unique_ids all use it.
var kinds = []Kind{
	txidKind,
	uniqueIDKind,
	shardedIDKind,
	callNumberKind,
	uuidv7Kind,
	traceIDKind,
	traceparentKind,
}

// Kinds returns all kinds of IDs that this package has.
func Kinds() []Kind { return slices.Clone(kinds) }

// Kind is a kind of IDs.
type Kind struct {
	// Scheme is the kind's name: that of [Decoded] and [ParseError].
	Scheme string
	// New returns a function that makes IDs of the kind. It is nil if IDs of the kind
	// can only be read.
	New func(Setup) (Generate, error)

	// characters is how many characters an ID has, in words.
	characters string
	readings   []reading
}

// Setup contains what some kinds need to make IDs. The zero Setup is enough for all
// others.
type Setup struct {
	// UniqueIDs returns the generator of unique_ids.
	UniqueIDs func() (*UniqueIDGenerator, error)
	// Shards is the number of shards of sharded_ids, 1 to [MaxShards]. Default: 1.
	Shards int
	// CallNumbers returns the generator of call_numbers.
	CallNumbers func() (*CallNumberGenerator, error)
}

// Generate makes an ID for something that arrived at the given time, and returns its
// text. It is safe for concurrent use. It waits no longer than the context allows.
type Generate func(ctx context.Context, arrival time.Time) (string, error)

// standalone is the New of a kind that needs no setup.
func standalone[T fmt.Stringer](make func() T) func(Setup) (Generate, error) {
	return func(Setup) (Generate, error) {
		return func(context.Context, time.Time) (string, error) { return make().String(), nil }, nil
	}
}

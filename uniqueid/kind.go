package uniqueid

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

// reading is one way to read a text.
type reading struct {
	shortest, longest int // in characters
	// alphabet is the number of different characters.
	alphabet int
	decode   func(string) (Decoded, error)
}

// readings are the readings of all kinds, the most likely first: a text in a small
// alphabet is seldom a text in a larger alphabet by chance.
var readings = func() (all []reading) {
	for _, kind := range kinds {
		all = append(all, kind.readings...)
	}
	slices.SortStableFunc(all, func(a, b reading) int { return cmp.Compare(a.alphabet, b.alphabet) })
	return all
}()

// Decode returns every possible reading of text. Most texts have one. Some have two,
// because the alphabets overlap. A sharded_id with a two-digit shard looks like a
// classic unique_id, and one with a three-digit shard like a txid. A - in a modern
// unique_id was another digit before Apache 2.4.47. 32 hexadecimal digits are a trace
// ID, and may be a UUIDv7 without its hyphens.
//
// The readings come in a fixed order, the most likely first. If there is none, the
// error contains a [*ParseError] for every scheme whose length matches, or one about
// the length.
func Decode(text string) ([]Decoded, error) {
	var found []Decoded
	var errs []error
	for _, r := range readings {
		if len(text) < r.shortest || len(text) > r.longest {
			continue
		}
		decoded, err := r.decode(text)
		if errors.Is(err, errSameReading) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		found = append(found, decoded)
	}
	switch {
	case len(found) > 0:
		return found, nil
	case len(errs) > 0:
		return nil, errors.Join(errs...)
	}
	return nil, lengthError("id", text, allLengths())
}

// allLengths lists the numbers of characters of all kinds.
func allLengths() string {
	var lengths []string
	for _, kind := range kinds {
		lengths = append(lengths, kind.characters+" ("+kind.Scheme+")")
	}
	last := len(lengths) - 1
	return strings.Join(lengths[:last], ", ") + " or " + lengths[last] + " characters"
}

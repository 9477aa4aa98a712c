// Package ids measures package uniqueid beside other generators of IDs.
package ids

import (
	"context"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	gofrs "github.com/gofrs/uuid/v5"
	"github.com/google/uuid"
	"github.com/jaevor/go-nanoid"
	"github.com/muyo/sno"
	"github.com/oklog/ulid/v2"
	"github.com/rogpeppe/fastuuid"
	"github.com/rs/xid"
	"github.com/segmentio/ksuid"
	"github.com/sony/sonyflake/v2"

	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// Generator is one way to make an ID's text.
type Generator struct {
	Name  string
	Times func(n int) // makes n IDs, one after another
	Pool  bool        // google/uuid reads random bytes for many IDs at once
	Slow  bool        // it waits by design, and is asked for a hundredth of the IDs
	Ours  bool        // of package uniqueid
}

// Turn is how many IDs of n the generator is asked for.
func (g Generator) Turn(n int) int {
	if g.Slow {
		return max(n/100, 1)
	}
	return n
}

// Prepared calls f while the generator's setting, which is one of the whole process,
// holds.
func (g Generator) Prepared(f func()) {
	if g.Pool {
		uuid.EnableRandPool()
		defer uuid.DisableRandPool()
	}
	f()
}

// times makes texts. All generators are called through a function value, which keeps
// the compiler from leaving out the allocation of some texts, but not of others.
func times(text func() string) func(n int) {
	return func(n int) {
		for range n {
			text()
		}
	}
}

// appending makes texts in one buffer.
func appending(add func(buf []byte) []byte) func(n int) {
	return func(n int) {
		buf := make([]byte, 0, 64)
		for range n {
			buf = add(buf[:0])
		}
	}
}

// must returns the value. The settings of all generators here are good.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// Generators are all generators: rs/xid, those of other packages, and ours.
func Generators() []Generator { return append(others(), ours()...) }

// others are the generators of other packages. Fastuuid counts on from one random
// number: its IDs can be guessed, and do not sort. Sno waits once it has made
// 65,536 IDs in four milliseconds, which here nothing reaches. Sonyflake makes
// 256 IDs in ten milliseconds and waits between them.
func others() []Generator {
	googleV4, googleV7 := times(uuid.NewString), times(func() string { return must(uuid.NewV7()).String() })
	fast := fastuuid.MustNewGenerator()
	sony := must(sonyflake.New(sonyflake.Settings{MachineID: func() (int, error) { return 1, nil }}))
	return []Generator{
		{Name: "rs/xid", Times: times(func() string { return xid.New().String() })},
		{Name: "google/uuid v4", Times: googleV4},
		{Name: "google/uuid v4, pool", Times: googleV4, Pool: true},
		{Name: "google/uuid v7", Times: googleV7},
		{Name: "google/uuid v7, pool", Times: googleV7, Pool: true},
		{Name: "gofrs/uuid v7", Times: times(func() string { return must(gofrs.NewV7()).String() })},
		{Name: "oklog/ulid", Times: times(func() string { return ulid.Make().String() })},
		{Name: "segmentio/ksuid", Times: times(func() string { return ksuid.New().String() })},
		{Name: "rogpeppe/fastuuid", Times: times(fast.Hex128)},
		{Name: "jaevor/go-nanoid", Times: times(must(nanoid.Standard(21)))},
		{Name: "muyo/sno", Times: times(func() string { return sno.New(0).String() })},
		{Name: "sony/sonyflake", Times: times(func() string { return strconv.FormatInt(must(sony.NextID()), 10) }), Slow: true},
	}
}

// ours are those of package uniqueid. A unique_id is given the time of arrival, which a
// server knows already.
func ours() []Generator {
	txid, uuidV7, trace := uniqueid.NewTXIDGenerator(), uniqueid.NewUUIDv7Generator(), uniqueid.NewTraceContextGenerator()
	all := []Generator{
		{Name: "txid", Times: times(func() string { return uniqueid.NewTXID().String() })},
		{Name: "txid, AppendText", Times: appending(func(buf []byte) []byte { return must(uniqueid.NewTXID().AppendText(buf)) })},
		{Name: "txid, AppendNew", Times: appending(txid.AppendNew)},
		{Name: "uuid_v7", Times: times(func() string { return uniqueid.NewUUIDv7().String() })},
		{Name: "uuid_v7, AppendText", Times: appending(func(buf []byte) []byte { return must(uniqueid.NewUUIDv7().AppendText(buf)) })},
		{Name: "uuid_v7, AppendNew", Times: appending(uuidV7.AppendNew)},
		{Name: "traceparent", Times: times(func() string { return uniqueid.NewTraceContext(uniqueid.NewUUIDv7()).String() })},
		{Name: "traceparent, AppendNew", Times: appending(trace.AppendNew)},
	}
	arrival := time.Now()
	for _, layout := range []uniqueid.Layout{uniqueid.Classic, uniqueid.Threaded, uniqueid.Modern} {
		gen := must(uniqueid.NewUniqueIDGenerator(layout, uniqueid.RandomNode()))
		name := "unique_id " + layout.String()
		all = append(all,
			Generator{Name: name, Times: times(func() string { return gen.New(arrival).String() })},
			Generator{Name: name + ", AppendNew", Times: appending(func(buf []byte) []byte { return gen.AppendNew(buf, arrival) })})
	}
	calls := uniqueid.NewCallNumberGenerator(new(runs))
	all = append(all, Generator{Name: "call_number", Times: times(func() string { return must(calls.New(context.Background())).String() })})
	for i := range all {
		all[i].Ours = true
	}
	return all
}

// runs is a store of call numbers in memory: what is measured is counting, of
// which the store has a 16,384th part.
type runs struct{ last atomic.Uint32 }

func (r *runs) NextRun(context.Context) (uint32, error) { return r.last.Add(1), nil }

// Unshared makes no IDs: it draws random numbers from a source of its own and
// shows what a second core is worth on this machine, at this moment, to work
// that shares nothing.
func Unshared() Generator {
	return Generator{Name: "nothing shared", Times: func(n int) {
		source := rand.NewPCG(1, 2)
		var sum uint64
		for range 32 * n {
			sum += source.Uint64()
		}
		runtime.KeepAlive(sum)
	}}
}

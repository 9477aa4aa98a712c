// Package ids measures package uniqueid beside other generators of IDs.
package ids

import (
	"context"
	"math"
	"math/rand/v2"
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
	Name string
	// Times makes n IDs, one after another. The loop is in here so that no
	// call through a function value is measured.
	Times func(n int)
	// Setting, if there is one, is a setting of the generator's package that holds
	// for the whole process. It is made before the generator's turn and undone after.
	Setting, Undo func()
	// Slow generators wait by design. They are asked for a hundredth of the IDs.
	Slow bool
	// Ours are those of package uniqueid.
	Ours bool
}

// Turn is how many IDs of n the generator is asked for.
func (g Generator) Turn(n int) int {
	if g.Slow {
		return max(n/100, 1)
	}
	return n
}

// Prepared calls f while the generator's setting holds.
func (g Generator) Prepared(f func()) {
	if g.Setting != nil {
		g.Setting()
		defer g.Undo()
	}
	f()
}

// Generators are all generators: rs/xid, those of other packages, and ours.
func Generators() []Generator {
	all := append(others(), stateless()...)
	for _, layout := range []uniqueid.Layout{uniqueid.Classic, uniqueid.Threaded, uniqueid.Modern} {
		all = append(all, uniqueIDs(layout)...)
	}
	return append(all, callNumber())
}

// must returns the value. The settings of all generators here are good.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// appending makes n texts in one buffer. Each caller's loop is its own, see
// [Generator.Times].
func appending(loop func(n int, buf []byte) []byte) func(n int) {
	return func(n int) { keep(string(loop(n, make([]byte, 0, 64)))) }
}

// stateless are our generators that need no node and no store.
func stateless() []Generator {
	txid, uuidV7, trace := uniqueid.NewTXIDGenerator(), uniqueid.NewUUIDv7Generator(), uniqueid.NewTraceContextGenerator()
	return []Generator{
		{Name: "txid", Ours: true, Times: func(n int) {
			for range n {
				keep(uniqueid.NewTXID().String())
			}
		}},
		{Name: "txid, AppendText", Ours: true, Times: appending(func(n int, buf []byte) []byte {
			for range n {
				buf, _ = uniqueid.NewTXID().AppendText(buf[:0])
			}
			return buf
		})},
		{Name: "txid, AppendNew", Ours: true, Times: appending(func(n int, buf []byte) []byte {
			for range n {
				buf = txid.AppendNew(buf[:0])
			}
			return buf
		})},
		{Name: "uuid_v7", Ours: true, Times: func(n int) {
			for range n {
				keep(uniqueid.NewUUIDv7().String())
			}
		}},
		{Name: "uuid_v7, AppendText", Ours: true, Times: appending(func(n int, buf []byte) []byte {
			for range n {
				buf, _ = uniqueid.NewUUIDv7().AppendText(buf[:0])
			}
			return buf
		})},
		{Name: "uuid_v7, AppendNew", Ours: true, Times: appending(func(n int, buf []byte) []byte {
			for range n {
				buf = uuidV7.AppendNew(buf[:0])
			}
			return buf
		})},
		{Name: "traceparent", Ours: true, Times: func(n int) {
			for range n {
				keep(uniqueid.NewTraceContext(uniqueid.NewUUIDv7()).String())
			}
		}},
		{Name: "traceparent, AppendNew", Ours: true, Times: appending(func(n int, buf []byte) []byte {
			for range n {
				buf = trace.AppendNew(buf[:0])
			}
			return buf
		})},
	}
}

// uniqueIDs are given the time of arrival, which a server knows already.
func uniqueIDs(layout uniqueid.Layout) []Generator {
	gen := must(uniqueid.NewUniqueIDGenerator(layout, uniqueid.RandomNode()))
	name := "unique_id " + layout.String()
	return []Generator{
		{Name: name, Ours: true, Times: func(n int) {
			arrival := time.Now()
			for range n {
				keep(gen.New(arrival).String())
			}
		}},
		{Name: name + ", AppendNew", Ours: true, Times: appending(func(n int, buf []byte) []byte {
			arrival := time.Now()
			for range n {
				buf = gen.AppendNew(buf[:0], arrival)
			}
			return buf
		})},
	}
}

// runs is a store of call numbers in memory: what is measured is counting, of
// which the store has a 16,384th part.
type runs struct{ last atomic.Uint32 }

func (r *runs) NextRun(context.Context) (uint32, error) { return r.last.Add(1), nil }

func callNumber() Generator {
	gen := uniqueid.NewCallNumberGenerator(&runs{})
	return Generator{Name: "call_number", Ours: true, Times: func(n int) {
		ctx := context.Background()
		for range n {
			keep(must(gen.New(ctx)).String())
		}
	}}
}

// Unshared makes no IDs: it draws random numbers from a source of its own and
// shows what a second core is worth on this machine, at this moment, to work
// that shares nothing.
func Unshared() Generator {
	return Generator{Name: "nothing shared", Times: func(n int) {
		source := rand.NewPCG(1, 2)
		var sum uint64
		for range n {
			for range 32 {
				sum += source.Uint64()
			}
		}
		keep(strconv.FormatUint(sum, 10))
	}}
}

// others are the generators of other packages. Fastuuid counts on from one random
// number: its IDs can be guessed, and do not sort. Sno waits once it has made
// 65,536 IDs in four milliseconds, which here nothing reaches. Sonyflake makes
// 256 IDs in ten milliseconds and waits between them.
func others() []Generator {
	fast := fastuuid.MustNewGenerator()
	nano := must(nanoid.Standard(21))
	sony := must(sonyflake.New(sonyflake.Settings{MachineID: func() (int, error) { return 1, nil }}))
	return []Generator{
		{Name: "rs/xid", Times: func(n int) {
			for range n {
				keep(xid.New().String())
			}
		}},
		{Name: "google/uuid v4", Times: googleV4},
		{Name: "google/uuid v4, pool", Times: googleV4, Setting: uuid.EnableRandPool, Undo: uuid.DisableRandPool},
		{Name: "google/uuid v7", Times: googleV7},
		{Name: "google/uuid v7, pool", Times: googleV7, Setting: uuid.EnableRandPool, Undo: uuid.DisableRandPool},
		{Name: "gofrs/uuid v7", Times: func(n int) {
			for range n {
				keep(must(gofrs.NewV7()).String())
			}
		}},
		{Name: "oklog/ulid", Times: func(n int) {
			for range n {
				keep(ulid.Make().String())
			}
		}},
		{Name: "segmentio/ksuid", Times: func(n int) {
			for range n {
				keep(ksuid.New().String())
			}
		}},
		{Name: "rogpeppe/fastuuid", Times: func(n int) {
			for range n {
				keep(fast.Hex128())
			}
		}},
		{Name: "jaevor/go-nanoid", Times: func(n int) {
			for range n {
				keep(nano())
			}
		}},
		{Name: "muyo/sno", Times: func(n int) {
			for range n {
				keep(sno.New(0).String())
			}
		}},
		{Name: "sony/sonyflake", Slow: true, Times: func(n int) {
			for range n {
				keep(strconv.FormatInt(must(sony.NextID()), 10))
			}
		}},
	}
}

func googleV4(n int) {
	for range n {
		keep(uuid.NewString())
	}
}

func googleV7(n int) {
	for range n {
		keep(must(uuid.NewV7()).String())
	}
}

// sink makes the compiler believe that texts live on, as those of a server do:
// otherwise it may leave out the allocation of some, but not of others.
var sink []string

//go:noinline
func keep(text string) {
	if len(text) > math.MaxUint8 {
		sink = append(sink, text)
	}
}

// Package ids measures package uniqueid beside what others make IDs with.
package ids

import (
	"context"
	"fmt"
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

// Ours are the generators of package uniqueid.
func Ours() ([]Generator, error) {
	var generators []Generator
	for _, layout := range []uniqueid.Layout{uniqueid.Classic, uniqueid.Threaded, uniqueid.Modern} {
		gen, err := uniqueid.NewUniqueIDGenerator(layout, uniqueid.RandomNode())
		if err != nil {
			return nil, fmt.Errorf("making the unique_id generator: %w", err)
		}
		generators = append(generators, Generator{Name: "unique_id " + layout.String(), Times: func(n int) {
			// As in a server, the time of arrival is known already.
			arrival := time.Now()
			for range n {
				keep(gen.New(arrival).String())
			}
		}}, Generator{Name: "unique_id " + layout.String() + ", AppendNew", Times: func(n int) {
			arrival, buf := time.Now(), make([]byte, 0, 32)
			for range n {
				buf = gen.AppendNew(buf[:0], arrival)
			}
			keep(string(buf))
		}})
	}
	generators = append([]Generator{
		TXIDString(), TXIDAppend(), TXIDAppendNew(),
		UUIDv7String(), UUIDv7Append(), UUIDv7AppendNew(), Traceparent(), TraceparentAppendNew(),
	}, generators...)
	return append(generators, callNumber()), nil
}

// runs is a store of call numbers in memory: what is measured is counting, of
// which the store has a 16,384th part.
type runs struct{ last atomic.Uint32 }

func (r *runs) NextRun(context.Context) (uint32, error) { return r.last.Add(1), nil }

func callNumber() Generator {
	gen := uniqueid.NewCallNumberGenerator(&runs{})
	return Generator{Name: "call_number", Times: func(n int) {
		ctx := context.Background()
		for range n {
			number, err := gen.New(ctx)
			if err != nil {
				panic(err)
			}
			keep(number.String())
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

// XID is rs/xid.
func XID() Generator {
	return Generator{Name: "rs/xid", Times: func(n int) {
		for range n {
			keep(xid.New().String())
		}
	}}
}

// TXIDString makes a txid as a string.
func TXIDString() Generator {
	return Generator{Name: "txid", Times: func(n int) {
		for range n {
			keep(uniqueid.NewTXID().String())
		}
	}}
}

// TXIDAppend makes a txid and appends its text to a buffer.
func TXIDAppend() Generator {
	return Generator{Name: "txid, AppendText", Times: func(n int) {
		buf := make([]byte, 0, 32)
		for range n {
			buf, _ = uniqueid.NewTXID().AppendText(buf[:0])
		}
		keep(string(buf))
	}}
}

// TXIDAppendNew makes a txid as text in a buffer, without the ID in between.
func TXIDAppendNew() Generator {
	gen := uniqueid.NewTXIDGenerator()
	return Generator{Name: "txid, AppendNew", Times: func(n int) {
		buf := make([]byte, 0, 32)
		for range n {
			buf = gen.AppendNew(buf[:0])
		}
		keep(string(buf))
	}}
}

// UUIDv7String makes a UUIDv7 as a string.
func UUIDv7String() Generator {
	return Generator{Name: "uuid_v7", Times: func(n int) {
		for range n {
			keep(uniqueid.NewUUIDv7().String())
		}
	}}
}

// UUIDv7Append makes a UUIDv7 and appends its text to a buffer.
func UUIDv7Append() Generator {
	return Generator{Name: "uuid_v7, AppendText", Times: func(n int) {
		buf := make([]byte, 0, 64)
		for range n {
			buf, _ = uniqueid.NewUUIDv7().AppendText(buf[:0])
		}
		keep(string(buf))
	}}
}

// UUIDv7AppendNew makes a UUIDv7 as text in a buffer, without the ID in between.
func UUIDv7AppendNew() Generator {
	gen := uniqueid.NewUUIDv7Generator()
	return Generator{Name: "uuid_v7, AppendNew", Times: func(n int) {
		buf := make([]byte, 0, 64)
		for range n {
			buf = gen.AppendNew(buf[:0])
		}
		keep(string(buf))
	}}
}

// Traceparent makes a UUIDv7 and the header field of its trace.
func Traceparent() Generator {
	return Generator{Name: "traceparent", Times: func(n int) {
		for range n {
			keep(uniqueid.NewTraceContext(uniqueid.NewUUIDv7()).String())
		}
	}}
}

// TraceparentAppendNew makes the header field of a new trace as text in a buffer.
func TraceparentAppendNew() Generator {
	gen := uniqueid.NewTraceContextGenerator()
	return Generator{Name: "traceparent, AppendNew", Times: func(n int) {
		buf := make([]byte, 0, 64)
		for range n {
			buf = gen.AppendNew(buf[:0])
		}
		keep(string(buf))
	}}
}

// Theirs are the generators of other packages.
func Theirs() []Generator {
	return []Generator{
		XID(),
		{Name: "google/uuid v4", Times: googleV4},
		{Name: "google/uuid v4, pool", Times: googleV4, Setting: uuid.EnableRandPool, Undo: uuid.DisableRandPool},
		{Name: "google/uuid v7", Times: googleV7},
		{Name: "google/uuid v7, pool", Times: googleV7, Setting: uuid.EnableRandPool, Undo: uuid.DisableRandPool},
		{Name: "gofrs/uuid v7", Times: func(n int) {
			for range n {
				keep(gofrs.Must(gofrs.NewV7()).String())
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
		fastUUID(),
		nanoID(),
		// Sno waits once it has made 65,536 IDs in four milliseconds, which here
		// nothing reaches.
		{Name: "muyo/sno", Times: func(n int) {
			for range n {
				keep(sno.New(0).String())
			}
		}},
		sonyFlake(),
	}
}

func googleV4(n int) {
	for range n {
		keep(uuid.NewString())
	}
}

func googleV7(n int) {
	for range n {
		keep(uuid.Must(uuid.NewV7()).String())
	}
}

// fastUUID is rogpeppe/fastuuid, which counts on from one random number: its IDs
// can be guessed, and do not sort.
func fastUUID() Generator {
	gen := fastuuid.MustNewGenerator()
	return Generator{Name: "rogpeppe/fastuuid", Times: func(n int) {
		for range n {
			keep(gen.Hex128())
		}
	}}
}

func nanoID() Generator {
	next, err := nanoid.Standard(21)
	if err != nil {
		panic(err) // 21 is a length that it makes
	}
	return Generator{Name: "jaevor/go-nanoid", Times: func(n int) {
		for range n {
			keep(next())
		}
	}}
}

// sonyFlake makes 256 IDs in ten milliseconds and waits between them: it is slow
// by design, whatever it does in its turn.
func sonyFlake() Generator {
	gen, err := sonyflake.New(sonyflake.Settings{MachineID: func() (int, error) { return 1, nil }})
	if err != nil {
		panic(err) // the settings are good
	}
	return Generator{Name: "sony/sonyflake", Slow: true, Times: func(n int) {
		for range n {
			id, err := gen.NextID()
			if err != nil {
				panic(err)
			}
			keep(strconv.FormatInt(id, 10))
		}
	}}
}

// sink makes the compiler believe that somebody reads the text.
var sink [math.MaxUint8 + 1]byte

//go:noinline
func keep(text string) {
	if len(text) > math.MaxUint8 {
		sink[0] = text[0]
	}
}

// Package ids measures package uniqueid beside other makers of IDs.
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
	"github.com/oklog/ulid/v2"
	"github.com/rs/xid"
	"github.com/segmentio/ksuid"

	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// Maker is one way to make an ID's text.
type Maker struct {
	Name string
	// Times makes n IDs, one after another. The loop is in here so that no
	// call through a function value is measured.
	Times func(n int)
}

// Ours are the makers of package uniqueid.
func Ours() ([]Maker, error) {
	var makers []Maker
	for _, layout := range []uniqueid.Layout{uniqueid.Classic, uniqueid.Threaded, uniqueid.Modern} {
		gen, err := uniqueid.NewUniqueIDGenerator(layout, uniqueid.RandomNode())
		if err != nil {
			return nil, fmt.Errorf("making the unique_id generator: %w", err)
		}
		makers = append(makers, Maker{"unique_id " + layout.String(), func(n int) {
			// As in a server, the time of arrival is known already.
			arrival := time.Now()
			for range n {
				keep(gen.New(arrival).String())
			}
		}})
	}
	makers = append([]Maker{TXIDString(), TXIDAppend(), TXIDAppendNew()}, makers...)
	return append(makers, callNumber()), nil
}

// runs is a store of call numbers in memory: what is measured is counting, of
// which the store has a 16,384th part.
type runs struct{ last atomic.Uint32 }

func (r *runs) NextRun(context.Context) (uint32, error) { return r.last.Add(1), nil }

func callNumber() Maker {
	gen := uniqueid.NewCallNumberGenerator(&runs{})
	return Maker{"call_number", func(n int) {
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
func Unshared() Maker {
	return Maker{"nothing shared", func(n int) {
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
func XID() Maker {
	return Maker{"rs/xid", func(n int) {
		for range n {
			keep(xid.New().String())
		}
	}}
}

// TXIDString makes a txid as a string.
func TXIDString() Maker {
	return Maker{"txid", func(n int) {
		for range n {
			keep(uniqueid.NewTXID().String())
		}
	}}
}

// TXIDAppend makes a txid and appends its text to a buffer.
func TXIDAppend() Maker {
	return Maker{"txid, AppendText", func(n int) {
		buf := make([]byte, 0, 32)
		for range n {
			buf, _ = uniqueid.NewTXID().AppendText(buf[:0])
		}
		keep(string(buf))
	}}
}

// TXIDAppendNew makes a txid as text in a buffer, without the ID in between.
func TXIDAppendNew() Maker {
	gen := uniqueid.NewTXIDGenerator()
	return Maker{"txid, AppendNew", func(n int) {
		buf := make([]byte, 0, 32)
		for range n {
			buf = gen.AppendNew(buf[:0])
		}
		keep(string(buf))
	}}
}

// Theirs are the makers of other packages.
func Theirs() []Maker {
	return []Maker{
		XID(),
		{"google/uuid v4", func(n int) {
			for range n {
				keep(uuid.NewString())
			}
		}},
		{"google/uuid v7", func(n int) {
			for range n {
				keep(uuid.Must(uuid.NewV7()).String())
			}
		}},
		{"gofrs/uuid v7", func(n int) {
			for range n {
				keep(gofrs.Must(gofrs.NewV7()).String())
			}
		}},
		{"oklog/ulid", func(n int) {
			for range n {
				keep(ulid.Make().String())
			}
		}},
		{"segmentio/ksuid", func(n int) {
			for range n {
				keep(ksuid.New().String())
			}
		}},
	}
}

// sink makes the compiler believe that somebody reads the text.
var sink [math.MaxUint8 + 1]byte

//go:noinline
func keep(text string) {
	if len(text) > math.MaxUint8 {
		sink[0] = text[0]
	}
}

// Package ids lists generators of IDs, ours beside others'.
package ids

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	gofrs "github.com/gofrs/uuid/v5"
	"github.com/google/uuid"
	"github.com/oklog/ulid/v2"
	"github.com/rs/xid"
	"github.com/segmentio/ksuid"

	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// Generator is one way to make an ID's text.
type Generator struct {
	Name  string
	Ours  bool
	Times func(n int) // makes n IDs, one after another
}

// Generators are all generators. The last makes no IDs: it draws random numbers from a
// source of its own, and shows what a second core is worth on this machine.
func Generators() []Generator {
	txid := uniqueid.NewTXIDGenerator()
	unique := must(uniqueid.NewUniqueIDGenerator(uniqueid.Classic, uniqueid.RandomNode()))
	arrival := time.Now() // which a server knows already
	return []Generator{
		{"txid, AppendText", true, appending(func(buf []byte) []byte { return must(txid.New().AppendText(buf)) })},
		{"txid", true, times(func() string { return uniqueid.NewTXID().String() })},
		{"unique_id", true, times(func() string { return unique.New(arrival).String() })},
		{"uuid_v7, AppendText", true, appending(func(buf []byte) []byte { return must(txid.NewUUIDv7().AppendText(buf)) })},
		{"uuid_v7", true, times(func() string { return uniqueid.NewUUIDv7().String() })},
		{"traceparent, AppendText", true, appending(func(buf []byte) []byte {
			return must(uniqueid.NewTraceContext(txid.NewUUIDv7()).AppendText(buf))
		})},
		{RSXID, false, times(func() string { return xid.New().String() })},
		{"oklog/ulid", false, times(func() string { return ulid.Make().String() })},
		{"google/uuid v4", false, times(uuid.NewString)},
		{"google/uuid v7", false, times(func() string { return must(uuid.NewV7()).String() })},
		{"gofrs/uuid v7", false, times(func() string { return must(gofrs.NewV7()).String() })},
		{"segmentio/ksuid", false, times(func() string { return ksuid.New().String() })},
		{NothingShared, false, unshared},
	}
}

// Generators that are compared with others.
const (
	RSXID         = "rs/xid"
	NothingShared = "nothing shared"
)

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

func unshared(n int) {
	source := rand.NewPCG(1, 2)
	var sum uint64
	for range 32 * n {
		sum += source.Uint64()
	}
	runtime.KeepAlive(sum)
}

// must returns the value. The settings of all generators here are good.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// Speed is the nanoseconds that an ID takes on one core, and how many times as many two
// cores make.
func (g Generator) Speed(n int) (nanoseconds, scaling float64) {
	began := time.Now()
	g.Times(n)
	one := time.Since(began)
	began = time.Now()
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() { g.Times(n) })
	}
	both.Wait()
	return float64(one.Nanoseconds()) / float64(n), 2 * one.Seconds() / time.Since(began).Seconds()
}

// Allocations is how many an ID takes.
func (g Generator) Allocations() float64 {
	const many = 10_000
	return float64(int(testing.AllocsPerRun(1, func() { g.Times(many) })/many + 0.5))
}

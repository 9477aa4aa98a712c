package main

import (
	"testing"
	"time"

	gofrs "github.com/gofrs/uuid/v5"
	"github.com/google/uuid"
	"github.com/oklog/ulid/v2"
	"github.com/rs/xid"
	"github.com/segmentio/ksuid"

	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// Making an ID as text, beside other generators. With -cpu 1,2 it shows whether cores get into
// each other's way.
func BenchmarkIDs(b *testing.B) {
	txid, arrival := uniqueid.NewTXIDGenerator(), time.Now()
	unique, err := uniqueid.NewUniqueIDGenerator(uniqueid.Classic, uniqueid.RandomNode())
	must(b, err)
	trace := func() uniqueid.TraceContext { return uniqueid.NewTraceContext(txid.NewUUIDv7()) }
	for _, g := range []struct {
		name string
		next func(buf []byte) ([]byte, error)
	}{
		{"txid,AppendText", func(buf []byte) ([]byte, error) { return txid.New().AppendText(buf) }},
		{"txid", text(func() string { return uniqueid.NewTXID().String() })},
		{"unique_id", text(func() string { return unique.New(arrival).String() })},
		{"uuid_v7,AppendText", func(buf []byte) ([]byte, error) { return txid.NewUUIDv7().AppendText(buf) }},
		{"uuid_v7", text(func() string { return uniqueid.NewUUIDv7().String() })},
		{"traceparent,AppendText", func(buf []byte) ([]byte, error) { return trace().AppendText(buf) }},
		{"rs/xid", text(func() string { return xid.New().String() })},
		{"oklog/ulid", text(func() string { return ulid.Make().String() })},
		{"google/uuid,v4", text(uuid.NewString)},
		{"google/uuid,v7", text(func() string { return uuid.Must(uuid.NewV7()).String() })},
		{"gofrs/uuid,v7", text(func() string { return gofrs.Must(gofrs.NewV7()).String() })},
		{"segmentio/ksuid", text(func() string { return ksuid.New().String() })},
	} {
		b.Run(g.name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(more *testing.PB) {
				for buf, err := make([]byte, 0, 64), error(nil); more.Next(); buf, err = g.next(buf[:0]) {
					if err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

// text makes a string each time. The function value keeps the compiler from leaving it out.
func text(next func() string) func(buf []byte) ([]byte, error) {
	return func(buf []byte) ([]byte, error) {
		next()
		return buf, nil
	}
}

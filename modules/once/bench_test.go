package once

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/modules/internal/engines"
)

// What a first request, a repetition and a request without a key cost, beside what the storage
// does for them.
func BenchmarkOnce(b *testing.B) {
	h := open(b, new(Handler), engines.File{})
	next := func(w http.ResponseWriter, _ *http.Request) error { _, err := io.WriteString(w, "ok"); return err }
	serve := func(key any) error {
		_, err := send(b.Context(), h, fmt.Sprint(key), http.NoBody, next)
		return err
	}
	k, first := testKey(b, "bare"), time.Now().UnixNano()
	for _, c := range []struct {
		name string
		do   func(i int) error
	}{
		{"two writes", func(i int) error {
			k.hash = fmt.Sprint("bare", i)
			r := &record{Outcome: repeated, Since: time.Now(), Body: []byte("ok")}
			_, err := h.records.store(k, r)
			_, again := h.records.store(k, r)
			return errors.Join(err, again)
		}},
		{"first", func(int) error { first++; return serve(first) }},
		{"one read", func(int) error {
			_, err := h.records.storage.Load(b.Context(), folder(time.Now())+"/bare0")
			return err
		}},
		{"repetition", func(int) error { return serve(first) }},
		{"no key", func(int) error { return serve("") }},
	} {
		b.Run(c.name, func(b *testing.B) {
			for i := range b.N {
				if err := c.do(i); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

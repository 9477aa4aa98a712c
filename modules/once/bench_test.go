package once

import (
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
	h := new(Handler)
	open(b, h, engines.File{})
	next := func(w http.ResponseWriter, _ *http.Request) error { _, err := io.WriteString(w, "ok"); return err }
	serve := func(key string) {
		if _, err := send(b.Context(), h, key, http.NoBody, next); err != nil {
			b.Fatal(err)
		}
	}
	k, err := deriveKey("example.com", "", "bare")
	if err != nil {
		b.Fatal(err)
	}
	first := time.Now().UnixNano()
	b.Run("two writes", func(b *testing.B) {
		for i := range b.N {
			k.hash = fmt.Sprint("bare", i)
			for range 2 {
				if err := h.records.store(&k, &record{State: answered, Since: time.Now(), Body: []byte("ok")}); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("first", func(b *testing.B) {
		for range b.N {
			first++
			serve(fmt.Sprint(first))
		}
	})
	b.Run("one read", func(b *testing.B) {
		for range b.N {
			if _, err := h.records.storage.Load(b.Context(), folder(time.Now())+"/bare0"); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("repetition", func(b *testing.B) {
		for range b.N {
			serve(fmt.Sprint(first))
		}
	})
	b.Run("no key", func(b *testing.B) {
		for range b.N {
			serve("")
		}
	})
}

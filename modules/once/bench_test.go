package once

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/internal/throttle"
	"github.com/orderly-http/caddy-orderly/modules/internal/engines"
)

// What a first request, a repetition and a request without a key cost, beside what the storage
// does for them.
func BenchmarkOnce(b *testing.B) {
	files := &certmagic.FileStorage{Path: b.TempDir()}
	h := &Handler{Scope: scopeNone, Path: filepath.Join(b.TempDir(), "queues"), log: zap.NewNop(), throttle: new(throttle.Throttle[string])}
	if err := h.fillIn(); err != nil {
		b.Fatal(err)
	}
	h.records = &records{storage: files, log: h.log}
	var err error
	if h.engine, err = engines.Open(engines.File{}, h.Path, slog.New(slog.DiscardHandler)); err != nil {
		b.Fatal(err)
	}
	defer h.engine.Release()
	next := caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error { _, err := io.WriteString(w, "ok"); return err })
	serve := func(key string) {
		r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/", http.NoBody)
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		repl := caddyhttp.NewTestReplacer(r)
		ctx := context.WithValue(r.Context(), caddyhttp.OriginalRequestCtxKey, *r)
		ctx = context.WithValue(ctx, caddyhttp.VarsCtxKey, map[string]any{})
		r = r.WithContext(context.WithValue(ctx, caddy.ReplacerCtxKey, repl))
		if err := h.ServeHTTP(httptest.NewRecorder(), r, next); err != nil {
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
			if _, err := files.Load(b.Context(), folder(time.Now())+"/bare0"); err != nil {
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

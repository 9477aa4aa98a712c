package serialize

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// serveOnce lets one request through a queue with a hold_timeout.
func serveOnce(t *testing.T, hold time.Duration, next caddyhttp.HandlerFunc) (*httptest.ResponseRecorder, error) {
	t.Helper()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	defer cancel()
	s := &Handler{Path: t.TempDir(), HoldTimeout: caddy.Duration(hold), EngineRaw: []byte(`{"engine": "memory"}`)}
	if err := s.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Cleanup() }()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, new(caddyhttp.Server))
	return w, s.ServeHTTP(w, r, next)
}

// Bug: if a handler answered after its turn was revoked, the client got that
// response, late and during somebody else's turn. Now the client gets the
// queue's response, without the headers that describe the handler's.
func TestResponseAfterRevocation(t *testing.T) {
	w, err := serveOnce(t, 50*time.Millisecond, func(w http.ResponseWriter, r *http.Request) error {
		<-r.Context().Done()
		w.Header().Set("Content-Length", "5")
		w.Header().Set("Cache-Control", "public")
		w.Header().Set("X-Other", "stays")
		if _, err := w.Write([]byte("hello")); !errors.Is(err, context.Canceled) {
			t.Errorf("writing: %v; expected a cancellation", err)
		}
		return nil
	})
	failure, ok := errors.AsType[caddyhttp.HandlerError](err)
	if !ok || failure.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("the error is %v; expected status 504", err)
	}
	h := w.Header()
	if w.Body.Len() > 0 || h.Get("Content-Length") != "" || h.Get("Cache-Control") != "" || h.Get("X-Other") != "stays" {
		t.Errorf("written: %q, %v", w.Body, h)
	}
}

// A response that has begun cannot be taken back. Bug: if the handler returned
// without an error, the client took the part for the whole.
func TestResponseCutOff(t *testing.T) {
	defer func() {
		if got := recover(); got != http.ErrAbortHandler {
			t.Errorf("the handler ended with %v; expected http.ErrAbortHandler", got)
		}
	}()
	_, err := serveOnce(t, 50*time.Millisecond, func(w http.ResponseWriter, r *http.Request) error {
		_, _ = w.Write([]byte("hel"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		_, _ = w.Write([]byte("lo"))
		return nil
	})
	t.Errorf("the handler returned %v", err)
}

// Bug: a response of which the client had got nothing was cut off as well. The client saw
// the connection end, without a status. reverse_proxy panics with http.ErrAbortHandler if
// it cannot write.
func TestResponseTakenBack(t *testing.T) {
	for _, throws := range []bool{false, true} {
		w, err := serveOnce(t, 50*time.Millisecond, func(w http.ResponseWriter, r *http.Request) error {
			w.Header().Set("Content-Length", "5")
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte("hel"))
			<-r.Context().Done()
			if _, err := w.Write([]byte("lo")); err == nil {
				t.Error("written after the turn was revoked")
			}
			if throws {
				panic(http.ErrAbortHandler)
			}
			return nil
		})
		failure, ok := errors.AsType[caddyhttp.HandlerError](err)
		if !ok || failure.StatusCode != http.StatusGatewayTimeout {
			t.Errorf("throws %t: the error is %v; expected status 504", throws, err)
		}
		if w.Body.Len() > 0 || w.Header().Get("Content-Length") != "" {
			t.Errorf("throws %t: written: %q, %v", throws, w.Body, w.Header())
		}
	}
}

// A response that is complete stays so.
func TestResponseBeforeRevocation(t *testing.T) {
	w, err := serveOnce(t, 50*time.Millisecond, func(w http.ResponseWriter, r *http.Request) error {
		_, err := w.Write([]byte("hello"))
		<-r.Context().Done()
		return err
	})
	if err != nil || w.Body.String() != "hello" {
		t.Errorf("written: %q, %v", w.Body, err)
	}
}

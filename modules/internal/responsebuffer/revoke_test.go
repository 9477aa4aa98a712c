package responsebuffer

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

var errRevoked = errors.New("revoked")

// A turn that was revoked is answered with 504 in place of what was kept, whether the
// response is whole, broken off by a panic, or not begun. The connection is as before.
//
// Bug: the head of a response that passes at once counted as sent, though net/http still
// had it. So the client saw a closed connection and no status.
func TestRevokedBeforeAnythingWasSent(t *testing.T) {
	for name, next := range map[string]func(w http.ResponseWriter, revoke func()) error{
		"whole": func(w http.ResponseWriter, revoke func()) error {
			w.Header().Set("Content-Length", "5")
			_, err := io.WriteString(w, "hello")
			revoke()
			return err
		},
		"a part": func(w http.ResponseWriter, revoke func()) error {
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "hel")
			revoke()
			_, err := io.WriteString(w, "lo")
			if !errors.Is(err, errRevoked) {
				t.Errorf("writing: %v", err)
			}
			return err
		},
		"aborted": func(w http.ResponseWriter, revoke func()) error {
			_, _ = io.WriteString(w, "hel")
			revoke()
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
		"the head of a large one": func(w http.ResponseWriter, revoke func()) error {
			w.Header().Set("Content-Length", "5000")
			w.WriteHeader(http.StatusOK)
			revoke()
			_, err := w.Write(make([]byte, 5000))
			return err
		},
		"late": func(w http.ResponseWriter, revoke func()) error {
			revoke()
			w.Header().Set("Content-Length", "5")
			w.WriteHeader(499) // as reverse_proxy does
			return nil
		},
		"after an interim answer": func(w http.ResponseWriter, revoke func()) error {
			w.WriteHeader(http.StatusEarlyHints)
			revoke()
			w.WriteHeader(http.StatusEarlyHints)
			return context.Canceled
		},
	} {
		t.Run(name, func(t *testing.T) {
			bothVersions(t, func(t *testing.T, http2 bool) {
				for _, limit := range []int64{1000, 0} {
					s := &site{http2: http2, limit: limit, finish: true, idle: time.Minute}
					s.next = func(w http.ResponseWriter, _ *http.Request) error {
						w.Header().Set("X-Own", "own")
						return next(w, func() { w.(*Buffer).turn.Revoke(errRevoked) })
					}
					wantReplaced(t, s)
				}
			})
		})
	}
}

// A client that does not read interim answers does not keep the turn after it was revoked.
func TestRevokedDuringStuckInterimAnswer(t *testing.T) {
	s := &site{limit: 1000, finish: true}
	s.next = func(w http.ResponseWriter, r *http.Request) error {
		var sent atomic.Int64
		go func() {
			for last := int64(-1); sent.Load() != last; time.Sleep(200 * time.Millisecond) {
				last = sent.Load()
			}
			w.(*Buffer).turn.Revoke(errRevoked)
		}()
		w.Header().Set("Link", strings.Repeat("x", 64<<10))
		for ; r.Context().Err() == nil; sent.Add(1) {
			w.WriteHeader(http.StatusEarlyHints)
		}
		return nil
	}
	server := s.start(t)
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	select {
	case <-s.errors:
	case <-time.After(wait.Patience):
		t.Error("the turn goes on")
	}
}

// wantReplaced expects that a response is replaced by that of the error route, twice over
// the same connection.
func wantReplaced(t *testing.T, s *site) {
	t.Helper()
	s.server.WriteTimeout = caddy.Duration(time.Minute)
	server := s.start(t)
	for range 2 {
		resp, text, err := get(t, server)
		if err != nil || resp.StatusCode != http.StatusGatewayTimeout || text != "error route" || resp.Header.Get("X-Own") != "" {
			t.Errorf("limit %d: %d, %q, %v, %v", s.limit, resp.StatusCode, text, resp.Header, err)
		}
		if err := <-s.errors; !errors.Is(err, errRevoked) {
			t.Errorf("the error is %v", err)
		}
	}
}

// A response that has begun is broken off, even if the handlers notice nothing.
func TestRevokedAfterAPart(t *testing.T) {
	bothVersions(t, func(t *testing.T, http2 bool) {
		s := &site{http2: http2, next: func(w http.ResponseWriter, _ *http.Request) error {
			_, _ = io.WriteString(w, "hello")
			_ = http.NewResponseController(w).Flush()
			w.(*Buffer).turn.Revoke(errRevoked)
			return nil
		}}
		server := s.start(t)
		resp, err := server.Client().Get(server.URL)
		if err == nil {
			defer resp.Body.Close()
			_, err = io.Copy(io.Discard, resp.Body)
		}
		if err == nil {
			t.Error("the response looks whole")
		}
	})
}

// After the turn, a revocation comes too late. Several may come at once.
func TestRevokedAfterTheTurn(t *testing.T) {
	w := httptest.NewRecorder()
	b := begin(w, httptest.NewRequest("GET", "/", http.NoBody), 1000, false)
	err := b.Serve(caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
		_, err := io.WriteString(w, "hello")
		return err
	}), nil)
	b.turn.End()
	b.turn.Revoke(errRevoked)
	if err = b.Deliver(err); err != nil || w.Body.String() != "hello" {
		t.Errorf("%q, %v", w.Body, err)
	}
	b = begin(w, httptest.NewRequest("GET", "/", http.NoBody), 1000, false)
	b.turn.Revoke(errRevoked)
	b.turn.Revoke(io.EOF)
	if err := b.Deliver(nil); !errors.Is(err, errRevoked) || !strings.Contains(err.Error(), "504") {
		t.Error(err)
	}
}

// Bug: if the body ended at the moment in which its reads were cut, the connection was kept,
// and its next request got 499: net/http took the client for gone.
func TestConnectionEndsAfterCutReads(t *testing.T) {
	w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader("x"))
	b := begin(w, r, 1000, false)
	b.turn.Revoke(io.EOF)
	b.turn.CutReads(w, 1)
	_, _ = io.ReadAll(r.Body)
	b.turn.End()
	if err := b.Deliver(nil); err == nil || w.Header().Get("Connection") != "close" {
		t.Errorf("error %v, header %v", err, w.Header())
	}
}

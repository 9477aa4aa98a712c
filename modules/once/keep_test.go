package once

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/throttle"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/modules/internal/engines"
)

// open opens a handler outside of Caddy, with records in files.
func open(t testing.TB, h *Handler, module engines.Module) {
	t.Helper()
	h.Scope, h.Path, h.log, h.throttle = scopeNone, t.TempDir(), zap.NewNop(), new(throttle.Throttle[string])
	if err := h.fillIn(); err != nil {
		t.Fatal(err)
	}
	h.records = &records{storage: &certmagic.FileStorage{Path: t.TempDir()}, log: h.log}
	var err error
	if h.engine, err = engines.Open(module, h.Path, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.engine.Release)
}

// send sends a request with a key. Bug: one whose method was written in lower case, which some
// upstreams take, passed.
func send(ctx context.Context, h *Handler, key string, body io.Reader, next caddyhttp.HandlerFunc) (*httptest.ResponseRecorder, error) {
	r, w := httptest.NewRequestWithContext(ctx, "post", "/", body), httptest.NewRecorder()
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("Accept-Encoding", "gzip")
	repl := caddyhttp.NewTestReplacer(r)
	ctx = context.WithValue(ctx, caddyhttp.OriginalRequestCtxKey, *r)
	ctx = context.WithValue(ctx, caddyhttp.VarsCtxKey, map[string]any{})
	return w, h.ServeHTTP(w, r.WithContext(context.WithValue(ctx, caddy.ReplacerCtxKey, repl)), next)
}

// An answer is repeated for keep, counted from the end of the first request, and then no more. Bug: a
// request took longer than keep, and its repetitions, which had waited for it, ran as well. Bug: one
// ran over midnight, and was forgotten too early.
func TestKeep(t *testing.T) {
	for _, c := range []struct {
		err  error // of the first request
		want int
	}{{nil, 200}, {errors.New("broken"), 409}} {
		synctest.Test(t, func(t *testing.T) { // from midnight on
			h := &Handler{Keep: new(caddy.Duration(time.Hour)), Timeout: new(caddy.Duration(day))}
			open(t, h, engines.Memory{})
			effects := 0
			next := func(w http.ResponseWriter, _ *http.Request) error {
				effects++
				time.Sleep(2 * time.Hour)
				w.Header().Set("Location", "/\x01\xfc")
				_, _ = io.WriteString(w, "ok")
				return c.err
			}
			time.Sleep(23 * time.Hour)
			go send(t.Context(), h, "k", http.NoBody, next)
			for _, after := range []time.Duration{time.Minute, time.Hour - time.Minute} { // while it runs, and just before keep has passed
				time.Sleep(after)
				if w, err := send(t.Context(), h, "k", http.NoBody, next); w.Code != c.want || err != nil || effects != 1 ||
					c.err == nil && w.Header().Get("Location") != "/\x01\xfc" {
					t.Errorf("a repetition: %d, %q, %v; %d effects", w.Code, w.Header(), err, effects)
				}
			}
			time.Sleep(2 * time.Minute)
			if _, _ = send(t.Context(), h, "k", http.NoBody, next); effects != 2 {
				t.Errorf("%d effects when keep has passed", effects)
			}
		})
	}
}

// A client hangs up while its request runs, which goes on with the whole body. Bug: of one in a file,
// the upstream got a part. An error route got nothing of one that had been read inside another turn.
func TestBodyOutlivesClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &Handler{Buffer: new(directive.Size(10))}
		open(t, h, engines.Memory{})
		ctx, hangUp := context.WithCancel(t.Context())
		var got []byte
		_, err := send(ctx, h, "k", strings.NewReader(strings.Repeat("x", 1000)), func(_ http.ResponseWriter, r *http.Request) (err error) {
			hangUp()
			synctest.Wait()
			if r.Header.Get("Accept-Encoding") != "" {
				t.Error("the upstream may encode an answer that a repetition cannot read")
			}
			got, err = io.ReadAll(r.Body)
			return err
		})
		if err != nil || len(got) != 1000 {
			t.Errorf("the upstream got %d bytes, %v", len(got), err)
		}
	})
}

// Bug: FastCGI broke off after an upstream had the request, and an error route behind once, which JSON can
// have, freed the key. Bug: so did one that found no upstream, and one after a part of an answer's head.
func TestErrorRouteBehind(t *testing.T) {
	php, dial := testcaddy.Serve(t, nil), new(net.Dialer)
	inner := &Handler{Key: "{http.vars.none}", Required: true}
	open(t, inner, engines.Memory{})
	for name, answers := range map[string]caddyhttp.HandlerFunc{
		"with an error":  func(http.ResponseWriter, *http.Request) error { return caddyhttp.Error(401, errors.New("log in")) },
		"with an answer": func(w http.ResponseWriter, _ *http.Request) error { w.WriteHeader(429); return nil },
		"after a part of a head": func(w http.ResponseWriter, r *http.Request) error {
			trace := httptrace.ContextClientTrace(r.Context())
			trace.GetConn("")
			trace.WroteHeaderField("Host", nil)
			trace.GotFirstResponseByte()
			w.WriteHeader(429)
			return nil
		},
		"with no upstream": func(http.ResponseWriter, *http.Request) error {
			return reverseproxy.NewDialError(errors.New("refused"))
		},
		"after a refusal": func(w http.ResponseWriter, r *http.Request) error { return inner.ServeHTTP(w, r, nil) },
	} {
		h, effects := new(Handler), 0
		open(t, h, engines.Memory{})
		next := func(w http.ResponseWriter, r *http.Request) error {
			effects++
			repl, port := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer), php[strings.LastIndex(php, ":")+1:]
			repl.Set("http.reverse_proxy.upstream.address", php)
			repl.Set("http.reverse_proxy.upstream.port", port)
			if _, err := dial.DialContext(r.Context(), "tcp", php); err != nil {
				t.Error(err)
			}
			_, _ = dial.DialContext(r.Context(), "tcp", "127.0.0.1:1") // refuses
			return answers(w, r)
		}
		_, _ = send(t.Context(), h, "k", http.NoBody, next)
		if w, err := send(t.Context(), h, "k", http.NoBody, next); w.Code != http.StatusConflict || err != nil || effects != 1 {
			t.Errorf("%s: then %d, %v; %d effects", name, w.Code, err, effects)
		}
	}
}

// torn is storage that first stores late or not at all, and removes late.
type torn struct {
	certmagic.Storage
	store, remove time.Duration
	err           error
	loses         bool // only the answer to Store, and Delete fails, too
	mended        atomic.Bool
}

func (s *torn) Store(ctx context.Context, key string, value []byte) error {
	if !s.mended.Load() {
		if s.loses {
			_ = s.Storage.Store(ctx, key, value)
		}
		if time.Sleep(s.store); s.err != nil {
			return s.err
		}
	}
	return s.Storage.Store(ctx, key, value)
}

func (s *torn) Delete(ctx context.Context, key string) error {
	time.Sleep(s.remove)
	if s.loses && !s.mended.Load() {
		return s.err
	}
	return s.Storage.Delete(ctx, key)
}

// A request that could not store that it has begun leaves no record, and removes none of the next one,
// whenever the storage gets to it. Bug: a late removal took the record of the next request away, and the
// key ran twice. Bug: a late record kept a key of which nothing had run; so did one whose removal failed once.
func TestLateStorage(t *testing.T) {
	failure := errors.New("disk full")
	for _, c := range []*torn{{remove: time.Minute, err: failure}, {store: time.Minute}, {loses: true, err: failure}} {
		synctest.Test(t, func(t *testing.T) {
			h, effects := new(Handler), 0
			open(t, h, engines.Memory{})
			next := func(http.ResponseWriter, *http.Request) error { effects++; return nil }
			c.Storage, h.records.storage = h.records.storage, c
			for _, want := range []int{503, 409, 200, 200} {
				if c.loses && want == 409 {
					want = 200
				}
				if w, err := send(t.Context(), h, "k", http.NoBody, next); w.Code != want || err != nil {
					t.Errorf("%d, want %d, %v", w.Code, want, err)
				}
				time.Sleep(time.Millisecond) // a removal may be tried
				c.mended.Store(true)
				if want == 409 {
					time.Sleep(time.Minute)
				}
			}
			if effects != 1 {
				t.Errorf("%d effects", effects)
			}
		})
	}
}

// Bug: the record of an answer came so late that it took the place of the next request's, and the key ran
// three times.
func TestLateRecordOfAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, effects := &Handler{Keep: new(caddy.Duration(5 * time.Second))}, 0
		open(t, h, engines.Memory{})
		c := &torn{Storage: h.records.storage, store: time.Minute}
		c.mended.Store(true)
		h.records.storage = c
		next := func(http.ResponseWriter, *http.Request) error { effects++; c.mended.Store(false); return nil }
		for _, want := range []int{200, 409} {
			if w, err := send(t.Context(), h, "k", http.NoBody, next); w.Code != want || err != nil || effects != 1 {
				t.Errorf("%d, want %d, %v; %d effects", w.Code, want, err, effects)
			}
		}
		time.Sleep(time.Hour)
	})
}

// Bug: a request that was evicted before it ran left a record, and repetitions were refused. Bug: if that record
// could not be removed, it was tried again, although the lease could be lost meanwhile, which nothing tells.
func TestEvictedBeforeItRan(t *testing.T) {
	for failure, then := range map[error]int{nil: 200, errors.New("disk full"): 409} {
		h := new(Handler)
		open(t, h, engines.Memory{})
		h.records.storage = &evicting{Storage: h.records.storage, h: h, failure: failure}
		next := func(http.ResponseWriter, *http.Request) error { return nil }
		for _, want := range []int{503, then} {
			if w, err := send(t.Context(), h, "k", http.NoBody, next); w.Code != want || err != nil {
				t.Errorf("%d, want %d, %v", w.Code, want, err)
			}
			wait.Until(t, "the turn is over", func() bool { return len(h.engine.Known(func(string) bool { return true })) == 0 })
		}
	}
}

// evicting is storage that evicts the first that stores, and may not remove what that has stored.
type evicting struct {
	certmagic.Storage
	h       *Handler
	once    sync.Once
	failure error
	tried   atomic.Bool
}

func (s *evicting) Delete(ctx context.Context, key string) error {
	if s.failure != nil && !s.tried.Swap(true) {
		return s.failure
	}
	return s.Storage.Delete(ctx, key)
}

func (s *evicting) Store(ctx context.Context, key string, value []byte) error {
	s.once.Do(func() {
		for _, q := range s.h.engine.Known(func(string) bool { return true }) {
			token, _ := strconv.ParseUint(q.Tickets[0].Token, 10, 64)
			_ = s.h.engine.Evict(ctx, q.Prefix, token)
		}
	})
	return s.Storage.Store(ctx, key, value)
}

// Lines that differ in where repetitions line up have the same records, and no key acts twice. Bug: after
// a reload with another path, one that came before the first had stored that it began ran, too.
func TestLinesInTwoPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := new(Handler), new(Handler)
		open(t, before, engines.Memory{})
		open(t, after, engines.Memory{})
		before.records.storage = &torn{Storage: before.records.storage, store: time.Second}
		after.records = before.records
		var effects atomic.Int32
		next := func(http.ResponseWriter, *http.Request) error { effects.Add(1); return nil }
		go send(t.Context(), before, "k", http.NoBody, next)
		synctest.Wait()
		w, err := send(t.Context(), after, "k", http.NoBody, next)
		if time.Sleep(time.Minute); w.Code != http.StatusServiceUnavailable || err != nil || effects.Load() != 1 {
			t.Errorf("in the other line: %d, %v; %d effects", w.Code, err, effects.Load())
		}
		if w, err = send(t.Context(), after, "k", http.NoBody, next); w.Code != http.StatusOK || err != nil || effects.Load() != 1 {
			t.Errorf("afterwards: %d, %v; %d effects", w.Code, err, effects.Load())
		}
	})
}

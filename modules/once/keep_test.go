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
	"github.com/orderly-http/caddy-orderly/modules/internal/engines"
)

// open opens a handler outside of Caddy, with records in files.
func open(t testing.TB, h *Handler, module engines.Module) *Handler {
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
	return h
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

// wants sends a request, and checks the status of its answer.
func wants(t *testing.T, what string, h *Handler, next caddyhttp.HandlerFunc, status int) {
	t.Helper()
	if w, err := send(t.Context(), h, "k", http.NoBody, next); w.Code != status || err != nil {
		t.Errorf("%s: %d, want %d, %v", what, w.Code, status, err)
	}
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
			h := open(t, &Handler{Keep: new(caddy.Duration(time.Hour)), Timeout: new(caddy.Duration(day))}, engines.Memory{})
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
		h := open(t, &Handler{Buffer: new(directive.Size(10))}, engines.Memory{})
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
	inner := open(t, &Handler{Key: "{http.vars.none}", Required: true}, engines.Memory{})
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
		h, effects := open(t, new(Handler), engines.Memory{}), 0
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
		if wants(t, name, h, next, http.StatusConflict); effects != 1 {
			t.Errorf("%s: %d effects", name, effects)
		}
	}
}

// torn is storage with a fault in one call of Store, and perhaps another one in the first of Delete.
type torn struct {
	certmagic.Storage
	nth              int32 // Store
	store, remove    fault
	stores, removals atomic.Int32
}

// fault is what a call does in place of what it should.
type fault func(do func() error) error

func late(by time.Duration) fault {
	return func(do func() error) error { time.Sleep(by); return do() }
}

func (s *torn) Store(ctx context.Context, key string, value []byte) error {
	do := func() error { return s.Storage.Store(ctx, key, value) }
	if s.stores.Add(1) == s.nth {
		return s.store(do)
	}
	return do()
}

func (s *torn) Delete(ctx context.Context, key string) error {
	do := func() error { return s.Storage.Delete(ctx, key) }
	if s.removals.Add(1) == 1 && s.remove != nil {
		return s.remove(do)
	}
	return do()
}

// A request that could not store that it has begun leaves no record, and removes none of the next one,
// whenever the storage gets to it. Bug: a late removal took the record of the next request away, and the
// key ran twice. Bug: a late record kept a key of which nothing had run; so did one whose removal failed once.
// Bug: the record of an answer came so late that it took the place of the next request's, and the key ran
// three times. Bug: a request that was evicted before it ran left a record, and repetitions were refused. Bug: if
// that record could not be removed, it was tried again, although the lease could be lost meanwhile, which is
// not seen.
func TestTornStorage(t *testing.T) {
	var h *Handler
	failure := errors.New("disk full")
	fails := func(func() error) error { return failure }
	loses := func(do func() error) error { _ = do(); return failure }
	evicts := func(do func() error) error {
		for _, q := range h.engine.Known(func(string) bool { return true }) {
			token, _ := strconv.ParseUint(q.Tickets[0].Token, 10, 64)
			_ = h.engine.Evict(context.Background(), q.Prefix, token)
		}
		return do()
	}
	for name, c := range map[string]struct {
		storage *torn
		want    []int
		effects int
	}{
		"a late removal":                    {&torn{nth: 1, store: fails, remove: late(time.Minute)}, []int{503, 409, 200, 200}, 1},
		"a late record":                     {&torn{nth: 1, store: late(time.Minute)}, []int{503, 409, 200, 200}, 1},
		"a removal that fails once":         {&torn{nth: 1, store: loses, remove: fails}, []int{503, 200, 200}, 1},
		"a late record of an answer":        {&torn{nth: 2, store: late(time.Minute)}, []int{200, 409}, 1},
		"evicted":                           {&torn{nth: 1, store: evicts}, []int{503, 200}, 1},
		"evicted, and a removal that fails": {&torn{nth: 1, store: evicts, remove: fails}, []int{503, 409}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			h = open(t, &Handler{Keep: new(caddy.Duration(5 * time.Second))}, engines.Memory{})
			effects := 0
			c.storage.Storage, h.records.storage = h.records.storage, c.storage
			for _, want := range c.want {
				wants(t, name, h, func(http.ResponseWriter, *http.Request) error { effects++; return nil }, want)
				if want == http.StatusConflict { // what is late has happened then
					time.Sleep(time.Minute)
				}
			}
			if time.Sleep(time.Hour); effects != c.effects {
				t.Errorf("%s: %d effects", name, effects)
			}
		})
	}
}

// Lines that differ in where repetitions line up have the same records, and no key acts twice. Bug: after
// a reload with another path, one that came before the first had stored that it began ran, too.
func TestLinesInTwoPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := open(t, new(Handler), engines.Memory{}), open(t, new(Handler), engines.Memory{})
		before.records.storage = &torn{Storage: before.records.storage, nth: 1, store: late(time.Second)}
		after.records = before.records
		var effects atomic.Int32
		next := func(http.ResponseWriter, *http.Request) error { effects.Add(1); return nil }
		go send(t.Context(), before, "k", http.NoBody, next)
		synctest.Wait()
		wants(t, "in the other line", after, next, http.StatusServiceUnavailable)
		time.Sleep(time.Minute)
		if wants(t, "afterwards", after, next, http.StatusOK); effects.Load() != 1 {
			t.Errorf("%d effects", effects.Load())
		}
	})
}

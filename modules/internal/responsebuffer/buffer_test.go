package responsebuffer

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/modules/internal/turncontext"
)

// site serves one handler behind a buffer, as Caddy would.
type site struct {
	limit  int64
	finish bool
	next   caddyhttp.HandlerFunc
	http2  bool
	server caddyhttp.Server
	idle   time.Duration // write_idle; 0 is off
	errors chan error    // of Deliver
}

func (s *site) start(t *testing.T) *httptest.Server {
	t.Helper()
	s.errors = make(chan error, 100)
	server := httptest.NewUnstartedServer(s)
	server.EnableHTTP2 = s.http2
	if s.http2 {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	server.Client().Timeout = wait.Patience
	return server
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.idle > 0 { // as Caddy does for write_idle
		w = &caddyhttp.IdleTimeoutWriter{
			ResponseWriterWrapper: &caddyhttp.ResponseWriterWrapper{ResponseWriter: w},
			Ctrl:                  http.NewResponseController(w),
			Deadline:              caddyhttp.IdleDeadline{Start: time.Now(), Timeout: s.idle},
			Logger:                zap.NewNop(),
			ClearBetweenWrites:    s.http2,
		}
	}
	r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, &s.server)
	b := begin(w, r, s.limit, s.finish)
	err := b.Serve(s.next, r)
	b.turn.End()
	if err = b.Deliver(err); err != nil {
		s.fail(w, err)
	}
	s.errors <- err
}

// begin begins the response to a request that is inside.
func begin(w http.ResponseWriter, r *http.Request, limit int64, finish bool) *Buffer {
	b, t := new(Buffer), new(turncontext.Context)
	vars, _ := r.Context().Value(caddyhttp.VarsCtxKey).(map[string]any)
	turns := new(turncontext.Turns)
	if vars != nil {
		turns = turncontext.TurnsOf(vars, turns)
	}
	t.Init(r, finish, turns)
	b.Init(w, r, t, limit)
	t.Begin(r, nil)
	return b
}

// fail is the error route.
func (s *site) fail(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	if failure, ok := errors.AsType[caddyhttp.HandlerError](err); ok {
		status = failure.StatusCode
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "error route")
}

// bothVersions runs a test over HTTP/1.1 and HTTP/2.
func bothVersions(t *testing.T, test func(t *testing.T, http2 bool)) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2 %t", http2), func(t *testing.T) { test(t, http2) })
	}
}

// get reads an answer. The error is that of its body.
func get(t *testing.T, server *httptest.Server) (resp *http.Response, text string, err error) {
	t.Helper()
	resp, err = server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp, string(body), err
}

// What is kept, and what passes at once.
func TestKinds(t *testing.T) {
	for _, c := range []struct {
		method, field, value string
		status               int
		passes               bool
	}{
		{"GET", "Content-Type", "text/html", 200, false},
		{"GET", "Content-Type", "text/event-stream", 200, true},
		{"GET", "Content-Type", "Text/Event-Stream; charset=utf-8", 200, true},
		{"GET", "Content-Type", "text/event-streams", 200, false},
		{"GET", "Content-Type", "application/x-ndjson", 200, true},
		{"GET", "Content-Type", "application/json", 200, false},
		{"GET", "Content-Type", "multipart/x-mixed-replace;boundary=a", 200, true},
		{"GET", "Content-Type", "application/grpc", 200, true},
		{"GET", "Content-Type", "application/grpc+proto", 200, true},
		{"GET", "Content-Type", "application/grpc-web-text", 200, true},
		{"GET", "Content-Type", "application/gr", 200, false},
		{"GET", "Content-Type", "application/connect+json", 200, true}, // bug: this and the next were held back
		{"GET", "Content-Type", "application/ndjson", 200, true},
		{"GET", "Content-Type", "application/jsonl; charset=utf-8", 200, true},
		{"GET", "Content-Type", "Application/X-JSONLines", 200, true},
		{"GET", "Content-Type", "application/json-seq", 200, true},
		{"GET", "Content-Type", "application/stream+json", 200, true},
		{"GET", "Content-Type", "application/vnd.amazon.eventstream", 200, true},
		{"GET", "Content-Type", "application/connect", 200, false},
		{"GET", "Incremental", "?1", 200, true},
		{"GET", "Incremental", "?1;a=b", 200, true},
		{"GET", "Incremental", "?0", 200, false},
		{"GET", "Incremental", "1", 200, false},
		{"GET", "X-Accel-Buffering", "no", 200, true},
		{"GET", "X-Accel-Buffering", "NO", 200, true},
		{"GET", "X-Accel-Buffering", "yes", 200, false},
		{"GET", "Content-Length", "1000", 200, false},
		{"GET", "Content-Length", "1001", 200, true},
		{"GET", "Content-Length", "1000", 304, false},
		{"GET", "Content-Length", "nonsense", 200, false},
		{"HEAD", "Content-Length", "1001", 200, true},
	} {
		t.Run(strings.Join([]string{c.method, c.field, c.value}, " "), func(t *testing.T) {
			w := httptest.NewRecorder()
			b := begin(w, httptest.NewRequest(c.method, "/", http.NoBody), 1000, false)
			if c.field != "" {
				b.Header().Set(c.field, c.value)
			}
			b.WriteHeader(c.status)
			b.Flush()
			if w.Flushed != c.passes || (b.state == passing) != c.passes {
				t.Errorf("passes: %t, state %d", w.Flushed, b.state)
			}
		})
	}
}

// A response that breaks off looks broken off, and its part arrives where it was flushed.
func TestAbortedResponse(t *testing.T) {
	bothVersions(t, func(t *testing.T, http2 bool) {
		s := &site{http2: http2, limit: 1000, next: func(w http.ResponseWriter, _ *http.Request) error {
			_, _ = io.WriteString(w, "part")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}}
		if _, text, err := get(t, s.start(t)); err == nil || text != "part" {
			t.Errorf("got %q, %v", text, err)
		}
	})
}

// An answer that an outer queue keeps is dropped if the inner turn is revoked in the middle of
// it. Bug: error routes between the two wrote their page behind the part, as one answer.
func TestPartInOuterQueue(t *testing.T) {
	s := site{limit: 1 << 20, errors: make(chan error, 1)}
	s.next = caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		inner := begin(w, r, 0, true)
		err := inner.Serve(caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
			_, err := w.Write(make([]byte, 2*unsent))
			inner.turn.Revoke(errors.New("revoked"))
			return err
		}), r)
		inner.turn.End()
		if err = inner.Deliver(err); err != nil {
			s.fail(w, err)
		}
		return nil
	})
	if resp, text, err := get(t, s.start(t)); resp.StatusCode != http.StatusGatewayTimeout || text != "error route" || err != nil {
		t.Errorf("%s, %d bytes, %v", resp.Status, len(text), err)
	}
}

// Other panics fly on.
func TestPanic(t *testing.T) {
	b := begin(httptest.NewRecorder(), httptest.NewRequest("GET", "/", http.NoBody), 1000, false)
	defer func() {
		if thrown := recover(); thrown != "mine" {
			t.Errorf("panicked with %v", thrown)
		}
	}()
	_ = b.Serve(caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { panic("mine") }), nil)
}

// Handlers that write more than they have announced have given a whole response, if the rest comes by
// itself. Bug: otherwise, the client took the announced part of it for the whole.
func TestResponseLongerThanAnnounced(t *testing.T) {
	for second, whole := range map[string]bool{"lo": true, "lo, world": false} {
		bothVersions(t, func(t *testing.T, http2 bool) {
			s := &site{http2: http2, limit: 1000, finish: true, next: func(w http.ResponseWriter, _ *http.Request) error {
				w.Header().Set("Content-Length", "5")
				for _, text := range []string{"hel", second, "mo"} {
					_, _ = io.WriteString(w, text)
				}
				return nil
			}}
			if _, text, err := get(t, s.start(t)); (err == nil && text == "hello") != whole || !whole && err == nil {
				t.Errorf("hel, %s, mo: %q, %v", second, text, err)
			}
		})
	}
}

// goneWriter is a client that has gone.
type goneWriter struct{ header http.Header }

var errGone = errors.New("broken pipe")

func (w goneWriter) Header() http.Header       { return w.header }
func (w goneWriter) WriteHeader(int)           {}
func (w goneWriter) Write([]byte) (int, error) { return 0, errGone }

// Bug: handlers that hijacked the connection of a client that had gone got neither a connection
// nor an error.
func TestHijackOfAClientThatHasGone(t *testing.T) {
	b := begin(goneWriter{make(http.Header)}, httptest.NewRequest("GET", "/", http.NoBody), 0, true)
	_, _ = io.WriteString(b, "hello")
	if conn, _, err := b.Hijack(); conn != nil || err == nil {
		t.Errorf("%v, %v", conn, err)
	}
	_ = b.Deliver(nil)
}

// forgetful takes a response and discards its body.
type forgetful struct {
	header http.Header
	writes int
}

func (w *forgetful) Header() http.Header         { return w.header }
func (w *forgetful) WriteHeader(int)             {}
func (w *forgetful) Write(p []byte) (int, error) { w.writes++; return len(p), nil }

// Bug: a writer that cannot flush failed to write what a handler had flushed before.
func TestWriterThatCannotFlush(t *testing.T) {
	w := &forgetful{header: make(http.Header)}
	b := begin(w, httptest.NewRequest("GET", "/", http.NoBody), 10, false)
	b.Flush()
	if n, err := b.Write(make([]byte, 5000)); n != 5000 || err != nil || w.writes != 1 {
		t.Errorf("wrote %d, %v", n, err)
	}
	_ = b.Deliver(nil)
}

// A header that is set after the status does not count, except for trailers.
func TestLateHeader(t *testing.T) {
	bothVersions(t, func(t *testing.T, http2 bool) {
		for trailer, name := range map[string]string{"": http.TrailerPrefix + "X-Sum", "X-Sum": "X-Sum"} {
			s := &site{http2: http2, limit: 1000, next: func(w http.ResponseWriter, _ *http.Request) error {
				w.Header()["Trailer"] = strings.Fields(trailer) // an empty text would announce one, too
				_, err := io.WriteString(w, "hello")
				w.Header().Set("X-Late", "late")
				w.Header().Set(name, "17")
				return err
			}}
			resp, text, err := get(t, s.start(t))
			if err != nil || resp.Header.Get("X-Late") != "" || text != "hello" || strings.Join(resp.Trailer["X-Sum"], " ") != "17" {
				t.Errorf("trailer %q: %q, %v, %v, %v", trailer, text, resp.Header, resp.Trailer, err)
			}
		}
	})
}

package serialize

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
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
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/timeouts"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/response"
)

// newQueue provisions a handler with the memory engine.
func newQueue(t *testing.T, buffer Size) *Handler {
	t.Helper()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	t.Cleanup(cancel)
	s := &Handler{Path: t.TempDir(), EngineRaw: []byte(`{"engine": "memory"}`), ResponseBuffer: &buffer}
	if err := s.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Cleanup() })
	return s
}

// serveBehind serves a queue and its next handler, over plain connections, with
// error routes and Caddy's write_idle; 0 is off. It counts the requests that it has
// served.
func serveBehind(t *testing.T, s *Handler, idle time.Duration, next, failed caddyhttp.HandlerFunc) (addr string, served *atomic.Int64) {
	t.Helper()
	server, served := new(caddyhttp.Server), new(atomic.Int64)
	serve := func(w http.ResponseWriter, r *http.Request) {
		defer served.Add(1)
		r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, server)
		w, r = withIdleTimeout(w, r, idle)
		if err := s.ServeHTTP(w, r, next); err != nil {
			_ = (&errorRoutes{last: true}).ServeHTTP(w, r, failed)
		}
	}
	running := httptest.NewServer(http.HandlerFunc(serve))
	t.Cleanup(running.Close)
	t.Cleanup(running.CloseClientConnections)
	return strings.TrimPrefix(running.URL, "http://"), served
}

// withIdleTimeout does what Caddy does for write_idle.
func withIdleTimeout(w http.ResponseWriter, r *http.Request, idle time.Duration) (http.ResponseWriter, *http.Request) {
	if idle == 0 {
		return w, r
	}
	writer := &caddyhttp.IdleTimeoutWriter{
		ResponseWriterWrapper: &caddyhttp.ResponseWriterWrapper{ResponseWriter: w},
		Ctrl:                  http.NewResponseController(w),
		Deadline:              caddyhttp.IdleDeadline{Start: time.Now(), Timeout: idle},
		Logger:                zap.NewNop(),
	}
	return writer, r.WithContext(caddyhttp.ContextWithIdleTimeouts(r.Context(), nil, writer))
}

// askSlowly asks for a path, and reads nothing.
func askSlowly(t *testing.T, addr, path string, fields ...string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	head := append([]string{"GET " + path + " HTTP/1.1", "Host: localhost", "Connection: close"}, fields...)
	if _, err := io.WriteString(conn, strings.Join(head, "\r\n")+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return conn
}

// readAtLast reads the response to askSlowly, at once.
func readAtLast(t *testing.T, conn net.Conn) (body []byte, err error) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(wait.Patience))
	text, err := io.ReadAll(conn)
	_, body, _ = bytes.Cut(text, []byte("\r\n\r\n"))
	return body, err
}

// moreThanAConnectionHolds is a response that fits the buffer of the tests here.
const (
	moreThanAConnectionHolds = 12 << 20
	bufferOfTests            = 16 << 20
)

// Bug: a response that had begun when its handler failed kept the turn for the error
// routes until the client had read it. A client that did not read held everybody up.
func TestSlowReaderOfAFailedResponse(t *testing.T) {
	s := newQueue(t, bufferOfTests)
	s.errorRoutes = true
	var last string // the error route that ran
	addr, _ := serveBehind(t, s, time.Minute, func(w http.ResponseWriter, r *http.Request) error {
		size := 100 << 10
		if r.URL.Path == "/slow" {
			size = moreThanAConnectionHolds
		}
		_, _ = w.Write(bytes.Repeat([]byte("x"), size))
		return errors.New("failed")
	}, func(w http.ResponseWriter, r *http.Request) error {
		last = r.URL.Path
		_, err := io.WriteString(w, "sorry")
		return err
	})

	slow := askSlowly(t, addr, "/slow")
	wait.Eventually(t, "the slow client drains", func() error { return wantCount(s.meters.counts.draining.Load(), 1) })
	client := &http.Client{Timeout: wait.Patience}
	resp, err := client.Get("http://" + addr + "/next")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || !strings.HasSuffix(string(text), "xsorry") {
		t.Errorf("the next one got %d bytes, %v, without the text of the error routes", len(text), err)
	}
	if got := s.meters.counts.draining.Load(); got != 1 {
		t.Errorf("%d clients drain", got)
	}
	if body, err := readAtLast(t, slow); err != nil || bytes.Count(body, []byte("x")) != moreThanAConnectionHolds {
		t.Errorf("the slow client got %d bytes, %v", len(body), err)
	}
	if last != "/next" {
		t.Error("the error routes of the slow client ran outside of its turn")
	}
}

// Bug: if a handler around the queue dealt with the error of a request, the turn was kept
// for a second longer. It waited for error routes that did not come.
func TestErrorThatAnotherHandlerDealsWith(t *testing.T) {
	const requests = 5
	s := newQueue(t, defaultResponseBuffer)
	s.errorRoutes = true
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, new(caddyhttp.Server))
		err := s.ServeHTTP(w, r, caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return errors.New("failed") }))
		if err != nil {
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	defer server.Close()
	start := time.Now()
	for range requests {
		resp, err := http.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusTeapot {
			t.Errorf("status %d", resp.StatusCode)
		}
	}
	if took := time.Since(start); took > (requests-1)*errorRoutesPatience {
		t.Errorf("%d requests took %v", requests, took)
	}
}

// Bug: in nested queues, the innermost turn of such a response was kept for a second for
// each queue around it.
func TestSlowReaderOfAFailedResponseInNestedQueues(t *testing.T) {
	const depth = 5
	failed := make(chan struct{})
	var next caddyhttp.Handler = caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
		_, _ = w.Write(bytes.Repeat([]byte("x"), moreThanAConnectionHolds))
		inner := w.(*response.Writer)
		wait.Eventually(t, "the queues around have it all", func() error {
			if inner.IsDraining() {
				return errors.New("not yet")
			}
			return nil
		})
		close(failed)
		return errors.New("failed")
	})
	var innermost, outermost *Handler
	for i := range depth {
		q, inner := newQueue(t, bufferOfTests), next
		q.errorRoutes, q.queue = true, fmt.Sprintf("q%d_", i)
		innermost = cmp.Or(innermost, q)
		outermost = q
		next = caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error { return q.ServeHTTP(w, r, inner) })
	}
	addr, _ := serveBehind(t, outermost, time.Minute, next.ServeHTTP, func(http.ResponseWriter, *http.Request) error { return nil })
	askSlowly(t, addr, "/")
	<-failed
	start := time.Now()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/next", http.NoBody)
	w := httptest.NewRecorder()
	r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, new(caddyhttp.Server))
	if err := innermost.ServeHTTP(w, r, unread); err != nil { // of which only the turn matters
		t.Error(err)
	}
	if kept := time.Since(start); kept > (depth-1)*errorRoutesPatience {
		t.Errorf("the innermost turn was kept for %v", kept)
	}
}

// Bug: a handler's write deadlines went to Caddy's writer while the sender used
// that: a data race. They apply to what the sender writes, then and afterwards.
func TestWriteDeadlineOfASlowReader(t *testing.T) {
	for name, deadlines := range map[string][]time.Duration{
		"late":       {200 * time.Millisecond},
		"moved":      {time.Hour, 200 * time.Millisecond},
		"taken back": {200 * time.Millisecond, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newQueue(t, bufferOfTests)
			addr, served := serveBehind(t, s, time.Minute, func(w http.ResponseWriter, _ *http.Request) error {
				part := make([]byte, moreThanAConnectionHolds/len(deadlines))
				for _, deadline := range deadlines {
					_, _ = w.Write(part)
					var at time.Time
					if deadline > 0 {
						at = time.Now().Add(deadline)
					}
					if err := http.NewResponseController(w).SetWriteDeadline(at); err != nil {
						t.Error(err)
					}
				}
				return nil
			}, nil)
			conn := askSlowly(t, addr, "/")
			if name == "taken back" {
				time.Sleep(500 * time.Millisecond)
				if body, err := readAtLast(t, conn); err != nil || len(body) < moreThanAConnectionHolds {
					t.Errorf("got %d bytes, %v", len(body), err)
				}
				return
			}
			wait.Eventually(t, "the deadline has passed", func() error { return wantCount(served.Load(), 1) })
			if body, _ := readAtLast(t, conn); len(body) >= moreThanAConnectionHolds {
				t.Error("the client got everything")
			}
		})
	}
}

// Bug: what a handler timeouts behind the queue had set was undone when it returned,
// and its clients were cut off while they drained. Without write_idle, they were cut
// off although they read all the time.
func TestTimeoutsBehindTheQueue(t *testing.T) {
	for _, c := range []struct {
		name          string
		server, route time.Duration // write timeouts; 0 is none
		stalls        time.Duration // the client, before it reads
		pauses        time.Duration // between reads of 400 KB
		whole         bool
	}{
		{name: "longer than the server's", server: 200 * time.Millisecond, route: time.Minute, stalls: time.Second, whole: true},
		{name: "shorter than the server's", server: time.Minute, route: 200 * time.Millisecond, stalls: time.Second},
		{name: "the only one, of a client that stalls", route: 200 * time.Millisecond, stalls: time.Second},
		{name: "the only one, of a client that reads", route: time.Second, pauses: 100 * time.Millisecond, whole: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newQueue(t, bufferOfTests)
			h := timeouts.Timeouts{WriteTimeout: c.route}
			addr, _ := serveBehind(t, s, c.server, func(w http.ResponseWriter, r *http.Request) error {
				return h.ServeHTTP(w, r, caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
					for range 12 {
						_, _ = w.Write(make([]byte, moreThanAConnectionHolds/12))
						_ = http.NewResponseController(w).Flush()
					}
					return nil
				}))
			}, nil)
			conn := askSlowly(t, addr, "/")
			time.Sleep(c.stalls)
			var size int64
			for err := error(nil); err == nil; time.Sleep(c.pauses) {
				var n int64
				n, err = io.CopyN(io.Discard, conn, 400<<10)
				size += n
			}
			if whole := size > moreThanAConnectionHolds; whole != c.whole {
				t.Errorf("the client got %d bytes", size)
			}
		})
	}
}

// The server's own timeouts are as before after the request, also with nested
// queues.
func TestTimeoutsAreGivenBack(t *testing.T) {
	outer, inner := newQueue(t, bufferOfTests), newQueue(t, bufferOfTests)
	inner.queue = "inner_"
	h := timeouts.Timeouts{WriteTimeout: time.Hour}
	w, r := withIdleTimeout(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody), time.Minute)
	r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, new(caddyhttp.Server))
	_, own := caddyhttp.IdleTimeoutsFromContext(r.Context())
	err := outer.ServeHTTP(w, r, caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		return inner.ServeHTTP(w, r, caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
			if got := response.CallersIdleWriter(r.Context()); got != own {
				t.Error("the writer of the server is not found behind two queues")
			}
			return h.ServeHTTP(w, r, caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
				_, err := w.Write(make([]byte, 100<<10))
				return err
			}))
		}))
	}))
	if got := own.Deadline.Timeout; err != nil || got != time.Minute {
		t.Errorf("the timeout is %v then, %v", got, err)
	}
}

// A handler can read and write in turns over HTTP/1.1, as without a queue.
func TestFullDuplex(t *testing.T) {
	s := newQueue(t, defaultResponseBuffer)
	*s.Buffer, *s.BufferDisk = 0, 0
	addr, _ := serveBehind(t, s, time.Minute, func(w http.ResponseWriter, r *http.Request) error {
		rc := http.NewResponseController(w)
		for _, when := range []string{"first", "again"} { // which is too late, and harmless
			if err := rc.EnableFullDuplex(); err != nil {
				t.Errorf("%s: %v", when, err)
			}
			_, _ = io.WriteString(w, when+"\n")
			_ = rc.Flush()
		}
		_, err := io.Copy(flushing{w}, r.Body)
		return err
	}, nil)
	conn := askSlowly(t, addr, "/", "Transfer-Encoding: chunked")
	_ = conn.SetDeadline(time.Now().Add(wait.Patience))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for i, want := range []string{"first\n", "again\n", "one\n", "two\n", "three\n"} {
		if i >= 2 {
			_, _ = fmt.Fprintf(conn, "%x\r\n%s\r\n", len(want), want)
		}
		if got, err := lines.ReadString('\n'); got != want {
			t.Fatalf("got %q, %v, want %q", got, err, want)
		}
	}
	_, _ = io.WriteString(conn, "0\r\n\r\n")
	if rest, err := io.ReadAll(lines); len(rest) > 0 || err != nil {
		t.Errorf("then %q, %v", rest, err)
	}
}

// flushing flushes everything.
type flushing struct{ http.ResponseWriter }

func (w flushing) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	_ = http.NewResponseController(w.ResponseWriter).Flush()
	return n, err
}

func wantCount(got, want int64) error {
	if got != want {
		return errors.New("not yet")
	}
	return nil
}

package serialize

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
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

// serveBehind serves a queue and what is behind it, over plain connections, with
// error routes.
func serveBehind(t *testing.T, s *Handler, server *caddyhttp.Server, next, failed caddyhttp.HandlerFunc) (addr string) {
	t.Helper()
	serve := func(w http.ResponseWriter, r *http.Request) {
		r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, server)
		if err := s.ServeHTTP(w, r, next); err != nil {
			_ = (&errorRoutes{last: true}).ServeHTTP(w, r, failed)
		}
	}
	running := httptest.NewServer(http.HandlerFunc(serve))
	t.Cleanup(running.Close)
	t.Cleanup(running.CloseClientConnections)
	return strings.TrimPrefix(running.URL, "http://")
}

// askSlowly asks for a path, and reads nothing.
func askSlowly(t *testing.T, addr, path string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return conn
}

// readAtLast reads what was asked for slowly, at once.
func readAtLast(t *testing.T, conn net.Conn) (body []byte, err error) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(testcaddy.Patience))
	text, err := io.ReadAll(conn)
	_, body, _ = bytes.Cut(text, []byte("\r\n\r\n"))
	return body, err
}

// moreThanAConnectionHolds is a response that fits the buffer of the tests here.
const (
	moreThanAConnectionHolds = 12 << 20
	bufferOfTests            = 16 << 20
)

// A response that had begun when its handler failed kept the turn for the error
// routes until the client had read it: a client that did not read held everybody up.
func TestSlowReaderOfAFailedResponse(t *testing.T) {
	s := newQueue(t, bufferOfTests)
	s.errorRoutes = true
	var last string // the error route that ran
	addr := serveBehind(t, s, new(caddyhttp.Server), func(w http.ResponseWriter, r *http.Request) error {
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
	testcaddy.Eventually(t, "the slow client drains", func() error { return wantCount(s.meters.counts.draining.Load(), 1) })
	client := &http.Client{Timeout: testcaddy.Patience}
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

func wantCount(got, want int64) error {
	if got != want {
		return errors.New("not yet")
	}
	return nil
}

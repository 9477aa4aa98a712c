package load

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
)

func TestReadResponse(t *testing.T) {
	for _, c := range []struct {
		text   string
		status int // 0 is an error
	}{
		{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200},
		{"HTTP/1.1 503 Busy\r\nX: y\r\ncontent-length:0\r\n\r\n", 503},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 200},
		{"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok", 0},
		{"HTTP/1.1 200 OK\r\nContent-Le", 0},
		{"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", 0},
		{"HTTP/1.1 200 OK\r\nX: y\r\n\r\n", 0},
		{"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 0},
		{"ho\r\n\r\n", 0},
	} {
		r := bufio.NewReader(strings.NewReader(c.text))
		status, err := readResponse(new(fasthttp.ResponseHeader), r)
		if status != c.status || (err != nil) != (c.status == 0) || err == nil && r.Buffered() > 0 {
			t.Errorf("readResponse(%q) = %d, %v, want %d", c.text, status, err, c.status)
		}
	}
}

func TestRun(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1)%3 == 0 || r.Header.Get("X-User") != "quiet" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		time.Sleep(time.Millisecond)
	}))
	defer server.Close()
	o, err := Run(context.Background(), Plan{
		Addrs: []string{strings.TrimPrefix(server.URL, "http://")}, Clients: 8, Headers: []string{"X-User: quiet"},
		Warmup: 20 * time.Millisecond, Window: 200 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	if o.Failures > 0 || o.Answers == 0 || o.Others == 0 || !o.Settled || len(o.Waits) != o.Answers {
		t.Errorf("got %+v", o)
	}
	if o.Waits[0] < time.Millisecond {
		t.Errorf("an answer came after %v, before the server gave it", o.Waits[0])
	}
}

// A line carries what it can, and no more.
func TestLine(t *testing.T) {
	const size, rate = 100_000, 200_000
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, size)) }))
	defer server.Close()
	o, err := Run(context.Background(), Plan{
		Addrs: []string{strings.TrimPrefix(server.URL, "http://")}, Clients: 1, Line: rate, Window: 1200 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	if o.Answers == 0 || o.Waits[0] < 400*time.Millisecond {
		t.Errorf("%d bytes at %d a second: %+v", size, rate, o)
	}
}

func TestRunNobodyListens(t *testing.T) {
	if o, err := Run(context.Background(), Plan{Addrs: []string{"127.0.0.1:1"}, Clients: 2}); err == nil {
		t.Errorf("got %+v", o)
	}
}

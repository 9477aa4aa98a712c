package load

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		text         string
		status, size int
		bad          bool
	}{
		{text: "HTTP/1.1 200 OK\r\nContent-Le"},
		{text: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", status: 200, size: 40},
		{text: "HTTP/1.1 503 Busy\r\nX: y\r\ncontent-length:0\r\n\r\n", status: 503, size: 45},
		{text: "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", bad: true},
		{text: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", bad: true},
		{text: "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n", bad: true},
		{text: "ho\r\n\r\n", bad: true},
	} {
		status, size, err := parse([]byte(c.text))
		if (err != nil) != c.bad {
			t.Errorf("parse(%q): %v", c.text, err)
		}
		if err == nil && (status != c.status || size != c.size) {
			t.Errorf("parse(%q) = %d, %d, want %d, %d", c.text, status, size, c.status, c.size)
		}
	}
}

func TestRun(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1)%3 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		time.Sleep(time.Millisecond)
	}))
	defer server.Close()
	o, err := Run(context.Background(), Plan{
		Addrs: []string{strings.TrimPrefix(server.URL, "http://")}, Clients: 8,
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

func TestRunNobodyListens(t *testing.T) {
	if o, err := Run(context.Background(), Plan{Addrs: []string{"127.0.0.1:1"}, Clients: 2}); err == nil {
		t.Errorf("got %+v", o)
	}
}

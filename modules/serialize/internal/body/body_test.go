package body

import (
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"
)

// newRequest has a body of that text. It is of an HTTP/1 client, and has no length if
// length is less than 0.
func newRequest(text string, length int64) *http.Request {
	r := httptest.NewRequest("POST", "/", io.NopCloser(strings.NewReader(text)))
	r.ContentLength = length
	return r
}

// No body is no work, and what an outer queue has read is not read again.
func TestNothingToRead(t *testing.T) {
	outer := newRequest("x", 1)
	first, _ := Read(outer, Limits{10, 0})
	webSocket := newRequest("x", -1)
	webSocket.Method, webSocket.ProtoMajor, webSocket.Header = "CONNECT", 2, http.Header{":protocol": {"websocket"}}
	for _, r := range []*http.Request{
		httptest.NewRequest("GET", "/", http.NoBody), {}, newRequest("", 0), outer, webSocket,
	} {
		before := r.Body
		if b, err := Read(r, Limits{10, 0}); b != nil || err != nil || r.Body != before {
			t.Errorf("%v: %v, %v", r, b, err)
		}
	}
	if first.size != 1 {
		t.Error("the outer body was not read")
	}
	r := newRequest("", -1) // HTTP/3 does not know that a GET has no body
	if b, err := Read(r, Limits{10, 0}); err != nil || b.size != 0 {
		t.Errorf("%v, %v", b, err)
	}
}

// What is in memory can be read after a proxy has closed the body.
func TestReadAfterClose(t *testing.T) {
	r := newRequest("hello", 5)
	b, _ := Read(r, Limits{10, 0})
	_ = r.Body.Close()
	b.Free()
	if text, err := io.ReadAll(r.Body); string(text) != "hello" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
}

// Bug: one byte too many was taken if the body ended with it. Nobody can read the rest of a
// body that is too large.
func TestOneByteTooMany(t *testing.T) {
	for _, limits := range []Limits{{1 << 10, 0}, {0, 1 << 10}, {512, 512}} {
		for size, want := range map[int]error{1 << 10: nil, 1<<10 + 1: ErrTooLarge} {
			r, text := newRequest("", -1), strings.Repeat("x", size)
			r.Body = io.NopCloser(iotest.DataErrReader(strings.NewReader(text)))
			b, err := Read(r, limits)
			if !errors.Is(err, want) {
				t.Errorf("%v, %d bytes: %v, want %v", limits, size, err, want)
			}
			if got, readErr := io.ReadAll(r.Body); readErr != err || err == nil && string(got) != text {
				t.Errorf("%v, %d bytes: a handler reads %d bytes, %v", limits, size, len(got), readErr)
			}
			b.Free()
		}
	}
}

// Bug: the turn of a request whose body was here was revoked as if the client were still
// sending, which ended the request's context. The error routes need that.
func TestUploadingUntilTheEnd(t *testing.T) {
	r := newRequest("hello", -1)
	_, stop := Watch(r.Context(), r)
	uploading := Uploading(r)
	stop()
	if text, err := io.ReadAll(r.Body); string(text) != "hello" || err != nil || uploading() {
		t.Errorf("%q, %v, uploading %t", text, err, uploading())
	}
	if Uploading(newRequest("", 0)) != nil || Uploading(newRequest("hello", 5)) == nil {
		t.Error("who uploads is wrong")
	}
}

// Bug: with enable_full_duplex, net/http panics if the body of one request is read while it
// reads the next. In the goroutine that reads ahead, that ended the process.
func TestUnreadInFullDuplex(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		_, stop := Watch(r.Context(), r)
		stop()
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // net/http's own panics
	server.Start()
	defer server.Close()
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for range 200 {
				conn, err := net.Dial("tcp", server.Listener.Addr().String())
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.WriteString(conn, strings.Repeat("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\naaa", 3))
				_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
				_, _ = io.Copy(io.Discard, conn)
				_ = conn.Close()
			}
		})
	}
	clients.Wait()
}

// Bug: net/http wrote the trailers, for the goroutine that reads ahead, into the map that
// the handlers were reading, which ended the process.
func TestTrailersReadAhead(t *testing.T) {
	running := make(chan bool)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.WithContext(r.Context()) // a copy, as handlers of Caddy get
		_, stop := Watch(r.Context(), r)
		stop()
		close(running)
		for end := time.Now().Add(50 * time.Millisecond); time.Now().Before(end); {
			r.Trailer.Clone()
		}
		if text, err := io.ReadAll(r.Body); string(text) != "text" || err != nil || r.Trailer.Get("A") != "1" {
			t.Errorf("the handler got %q, %v, %v", text, err, r.Trailer)
		}
	}))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n")
	<-running
	_, _ = io.WriteString(conn, "4\r\ntext\r\n0\r\nA: 1\r\n\r\n")
	if answer, err := io.ReadAll(conn); !strings.HasPrefix(string(answer), "HTTP/1.1 200") {
		t.Errorf("%q, %v", answer, err)
	}
}

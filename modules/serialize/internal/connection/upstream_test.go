//go:build unix

package connection

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"
)

// Bug: the last connection of a proxy counted as the upstream of the body for
// ever. If a client broke off its upload to another handler, such as
// php_fastcgi after forward_auth, the proxy's idle connection was half-closed.
// By then, another request could use it.
func TestUpstreamThatHasTheWholeRequest(t *testing.T) {
	server := newUpstream(t)
	for _, body := range []string{"", "x"} {
		u := new(Upstream)
		request(httptrace.WithClientTrace(t.Context(), u.Trace()), t, server, strings.NewReader(body))
		if u.got != nil || u.writing != nil || u.kept != nil {
			t.Errorf("with the body %q, the connection is still known", body)
		}
		var reused bool
		other := &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) { reused = got.Reused }}
		request(httptrace.WithClientTrace(t.Context(), other), t, server, nil)
		if !reused {
			t.Errorf("with the body %q, the connection was lost", body)
		}
		u.Await(t.Context())
	}
}

// When net/http says that a connection went back to the idle pool, other
// requests may use it: it must be forgotten before.
func TestUpstreamIsForgottenBeforeItIsIdle(t *testing.T) {
	server := newUpstream(t)
	u := new(Upstream)
	idle := make(chan bool, 1)
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{PutIdleConn: func(error) {
		u.mu.Lock()
		defer u.mu.Unlock()
		idle <- u.got == nil && u.writing == nil
	}})
	request(httptrace.WithClientTrace(ctx, u.Trace()), t, server, strings.NewReader("x"))
	if !<-idle {
		t.Error("the connection was idle and known")
	}
}

// If the body breaks off while it is written, the upstream is notified, the
// visit waits for it, and nobody else gets the connection.
func TestUpstreamOfABodyThatBreaksOff(t *testing.T) {
	server := newUpstream(t)
	u := new(Upstream)
	broken := errors.New("broken off")
	body := io.MultiReader(strings.NewReader(strings.Repeat("x", 64<<10)), readerFunc(func([]byte) (int, error) { return 0, broken }))
	r, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), u.Trace()), http.MethodPost, server.URL, body)
	if err != nil {
		t.Fatal(err)
	}
	r.ContentLength = 1 << 20
	// The upstream's answer to the incomplete body may come before the error.
	response, err := server.Client().Do(r)
	if err == nil {
		_ = response.Body.Close()
	} else if !errors.Is(err, broken) {
		t.Errorf("the request ended with %v", err)
	}
	u.mu.Lock()
	if u.kept == nil {
		t.Error("the upstream was not kept")
	}
	u.mu.Unlock()
	u.Await(t.Context())
	request(t.Context(), t, server, nil)
}

// An HTTP/2 connection carries other requests, too.
func TestUpstreamOverHTTP2(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(discard))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	u := new(Upstream)
	read, known := false, false
	body := readerFunc(func([]byte) (int, error) {
		u.mu.Lock()
		defer u.mu.Unlock()
		read, known = true, u.writing != nil
		return 0, io.EOF
	})
	request(httptrace.WithClientTrace(t.Context(), u.Trace()), t, server, body)
	if !read || known || u.kept != nil {
		t.Errorf("body read: %v, connection known: %v, kept: %v", read, known, u.kept != nil)
	}
}

func newUpstream(t *testing.T) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(discard))
	t.Cleanup(server.Close)
	return server
}

func discard(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }

// request makes a request, and reads the answer to its end.
func request(ctx context.Context, t *testing.T, server *httptest.Server, body io.Reader) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, body)
	if err != nil {
		t.Fatal(err)
	}
	response, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatal(err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

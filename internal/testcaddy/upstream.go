package testcaddy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// Upstream is what a queue protects: a server that notes who enters and leaves,
// and keeps each request until the test lets it go.
type Upstream struct {
	Addr string // host:port

	t       testing.TB
	entered chan *Visitor

	mu     sync.Mutex
	inside int
	most   int
}

// Visitor is a request that is inside.
type Visitor struct {
	Method string
	Name   string // of the request's path, without the slash
	Header http.Header
	Body   string

	leave chan struct{}
	once  sync.Once
	Gone  chan struct{} // closed when it has left
}

// NewUpstream makes one, until the end of the test.
func NewUpstream(t testing.TB) *Upstream {
	u := &Upstream{t: t, entered: make(chan *Visitor, 1000)}
	u.Addr = Serve(t, u)
	return u
}

// Serve serves HTTP until the end of the test, and returns host and port. Requests
// that are still being handled then are cancelled.
func Serve(t testing.TB, handler http.Handler) (addr string) {
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return strings.TrimPrefix(server.URL, "http://")
}

// ServeHTTP implements [http.Handler].
func (u *Upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	v := &Visitor{
		Method: r.Method, Name: strings.TrimPrefix(r.URL.Path, "/"), Header: r.Header, Body: string(body),
		leave: make(chan struct{}), Gone: make(chan struct{}),
	}
	u.count(1)
	u.entered <- v
	defer close(v.Gone)
	defer u.count(-1)
	select {
	case <-v.leave:
		_, _ = io.WriteString(w, "served "+v.Name)
	case <-r.Context().Done():
	}
}

func (u *Upstream) count(by int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.inside += by
	u.most = max(u.most, u.inside)
}

// Most is how many were inside together at most.
func (u *Upstream) Most() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.most
}

// Next waits for the next request to enter.
func (u *Upstream) Next() *Visitor {
	u.t.Helper()
	select {
	case v := <-u.entered:
		return v
	case <-time.After(Patience):
		u.t.Fatal("waited in vain for a request to enter")
		return nil
	}
}

// NextNamed waits for the next request to enter, which must have that name.
func (u *Upstream) NextNamed(name string) *Visitor {
	u.t.Helper()
	v := u.Next()
	if v.Name != name {
		u.t.Fatalf("%s entered; expected %s", v.Name, name)
	}
	return v
}

// Nobody makes sure that nobody else enters for a moment.
func (u *Upstream) Nobody() {
	u.t.Helper()
	select {
	case v := <-u.entered:
		u.t.Fatalf("%s entered; expected nobody", v.Name)
	case <-time.After(150 * time.Millisecond):
	}
}

// Leave lets a request go and returns when it has left the upstream.
func (v *Visitor) Leave() {
	v.once.Do(func() { close(v.leave) })
	<-v.Gone
}

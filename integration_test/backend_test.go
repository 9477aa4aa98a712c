//go:build unix

package integration_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// backend is the fragile upstream that a queue protects. It notes who is inside when,
// on the monotonic clock of this process. The query of a request says what is
// to be done: "name" names the visit, "work" is how long it takes; with "gate"
// it takes until the test opens the gate of that name. With "stream" it sends
// its answer all the while, with "flood" more than any connection holds, and
// "status" is its status.
type backend struct {
	addr string

	mu     sync.Mutex
	visits []*visit
	inside int
	most   int // were inside at the same time
	gates  map[string]chan struct{}
}

// visit is one request in the backend.
type visit struct {
	name      string
	method    string
	path      string
	header    http.Header
	length    int64 // of the body
	digest    [sha256.Size]byte
	entered   time.Time
	left      time.Time // zero while it is inside
	cancelled bool      // by the proxy
}

func newBackend(t testing.TB) *backend {
	b := &backend{gates: make(map[string]chan struct{})}
	b.addr = testcaddy.Serve(t, b)
	t.Cleanup(b.openAll)
	return b
}

// ServeHTTP implements [http.Handler].
func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	v := b.enter(r)
	defer b.leave(v)
	digest := sha256.New()
	n, err := io.Copy(digest, r.Body)
	b.update(func() { v.length, v.digest = n, [sha256.Size]byte(digest.Sum(nil)) })
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if !b.work(v, w, r) {
		b.update(func() { v.cancelled = true })
		return
	}
	if status, err := strconv.Atoi(query.Get("status")); err == nil {
		w.WriteHeader(status)
	}
	fmt.Fprintf(w, "served %s", v.name)
}

// work does what the request asks for. It reports whether it came to its end.
func (b *backend) work(v *visit, w io.Writer, r *http.Request) bool {
	query := r.URL.Query()
	var worked, tick <-chan time.Time
	opened := b.gate(v.name)
	if work, err := time.ParseDuration(query.Get("work")); err == nil {
		worked, opened = time.After(work), nil
	} else if !query.Has("gate") {
		opened = alwaysOpen
	}
	chunk := make([]byte, 64<<10)
	if query.Has("flood") {
		chunk = make([]byte, 4<<20)
	}
	if query.Has("stream") || query.Has("flood") {
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		select {
		case <-worked:
			return true
		case <-opened:
			return true
		case <-r.Context().Done():
			return false
		case <-tick:
			if _, err := w.Write(chunk); err != nil {
				return false
			}
		}
	}
}

var alwaysOpen = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (b *backend) enter(r *http.Request) *visit {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := &visit{name: r.URL.Query().Get("name"), method: r.Method, path: r.URL.Path, header: r.Header, entered: time.Now()}
	b.visits = append(b.visits, v)
	b.inside++
	b.most = max(b.most, b.inside)
	return v
}

func (b *backend) leave(v *visit) {
	b.update(func() {
		v.left = time.Now()
		b.inside--
	})
}

func (b *backend) update(what func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	what()
}

// gate returns the gate of a name. It is closed until it is opened for good.
func (b *backend) gate(name string) chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.gates[name]
	if g == nil {
		g = make(chan struct{})
		b.gates[name] = g
	}
	return g
}

// open lets the visit of a name end.
func (b *backend) open(name string) { close(b.gate(name)) }

// openAll lets all visits end, at the end of a test.
func (b *backend) openAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, g := range b.gates {
		select {
		case <-g:
		default:
			close(g)
		}
	}
}

// visit returns a copy of the visit of a name, or nil.
func (b *backend) visit(name string) *visit {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, v := range b.visits {
		if v.name == name {
			now := *v
			return &now
		}
	}
	return nil
}

// awaitEntry waits until the visit of a name has begun.
func (b *backend) awaitEntry(t testing.TB, name string) *visit {
	t.Helper()
	eventually(t, patience, name+" is in the backend", func() bool { return b.visit(name) != nil })
	return b.visit(name)
}

// awaitExit waits until the visit of a name has ended.
func (b *backend) awaitExit(t testing.TB, name string) *visit {
	t.Helper()
	eventually(t, patience, name+" has left the backend", func() bool {
		v := b.visit(name)
		return v != nil && !v.left.IsZero()
	})
	return b.visit(name)
}

// order lists the names of the visits as they began.
func (b *backend) order() (names []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, v := range b.visits {
		names = append(names, v.name)
	}
	return names
}

// wantOrder fails the test unless the visits began in this order, and there
// were no others.
func (b *backend) wantOrder(t testing.TB, names ...string) {
	t.Helper()
	if got := b.order(); !slices.Equal(got, names) {
		t.Errorf("the backend saw %v, want %v", got, names)
	}
}

// wantNever fails the test if the backend has seen a visit of this name.
func (b *backend) wantNever(t testing.TB, name string) {
	t.Helper()
	if b.visit(name) != nil {
		t.Errorf("the backend saw %s", name)
	}
}

// wantAlone fails the test if two visits overlapped.
func (b *backend) wantAlone(t testing.TB) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.most > 1 {
		t.Errorf("%d requests were in the backend at the same time", b.most)
	}
}

// wantTokensGrow fails the test unless the fencing tokens grew from visit to
// visit.
func (b *backend) wantTokensGrow(t testing.TB) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	var last uint64
	for _, v := range b.visits {
		token, err := strconv.ParseUint(v.header.Get("X-Token"), 10, 64)
		if err != nil || token <= last {
			t.Fatalf("visit %s has the token %q after %d", v.name, v.header.Get("X-Token"), last)
		}
		last = token
	}
}

package testcaddy

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// Upstream is a server behind a queue. It records when each request is inside, on the
// monotonic clock of the test. The query of a request says what to do with it:
//
//   - "name" names the hit; the default is the path without the slash.
//   - "work" is how long it takes; with "gate", it takes until the test ends it with
//     [Upstream.Open] or [Hit.Leave].
//   - "stream" sends the response continuously, and soon more than any connection buffers.
//     "status" is the response's status.
type Upstream struct {
	Addr string // host:port

	t       testing.TB
	gated   bool
	entered chan Hit // for Next, once the body has been read

	mu     sync.Mutex
	hits   []*Hit
	opened map[string]bool
}

// Hit is what is known about a request at an upstream, at the time of the call that
// returned it.
type Hit struct {
	Name      string
	Header    http.Header
	Body      string
	Entered   time.Time
	Left      time.Time // zero while it is inside
	Cancelled bool      // by the proxy

	Gone  chan struct{} // closed when it has left
	ended chan struct{}
	end   func() // closes ended
}

// NewUpstream starts an upstream that runs until the end of the test.
func NewUpstream(t testing.TB) *Upstream {
	u := &Upstream{t: t, entered: make(chan Hit, 1000), opened: make(map[string]bool)}
	u.Addr = Serve(t, u)
	t.Cleanup(u.OpenAll)
	return u
}

// NewGatedUpstream starts an upstream that keeps each request until the test ends it,
// unless the request's query says how long it takes.
func NewGatedUpstream(t testing.TB) *Upstream {
	u := NewUpstream(t)
	u.gated = true
	return u
}

// Serve serves HTTP until the end of the test, and returns host and port. Requests that
// are still in progress then are cancelled.
func Serve(t testing.TB, handler http.Handler) (addr string) {
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.Listener.Addr().String()
}

// ServeHTTP implements [http.Handler].
func (u *Upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v := u.enter(r)
	defer u.update(func() {
		v.Left = time.Now()
		close(v.Gone)
	})
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	u.update(func() {
		v.Body = string(body)
		select {
		case u.entered <- *v:
		default: // a test with so many hits does not ask for each
		}
	})
	if !v.work(w, r) {
		u.update(func() { v.Cancelled = true })
		return
	}
	if status, err := strconv.Atoi(r.URL.Query().Get("status")); err == nil {
		w.WriteHeader(status)
	}
	fmt.Fprintf(w, "served %s", v.Name)
}

func (u *Upstream) enter(r *http.Request) *Hit {
	query, ended := r.URL.Query(), make(chan struct{})
	v := &Hit{
		Name: strings.TrimPrefix(r.URL.Path, "/"), Header: r.Header, Entered: time.Now(),
		Gone: make(chan struct{}), ended: ended, end: sync.OnceFunc(func() { close(ended) }),
	}
	if query.Has("name") {
		v.Name = query.Get("name")
	}
	u.update(func() {
		if u.opened[v.Name] || !query.Has("gate") && !u.gated {
			v.end()
		}
		u.hits = append(u.hits, v)
	})
	return v
}

// work does what the request asks for. It reports whether it finished.
func (v *Hit) work(w io.Writer, r *http.Request) bool {
	query, ended := r.URL.Query(), v.ended
	var worked, tick <-chan time.Time
	if work, err := time.ParseDuration(query.Get("work")); err == nil {
		worked, ended = time.After(work), nil
	}
	chunk := make([]byte, 1<<20)
	if query.Has("stream") {
		tick = time.Tick(10 * time.Millisecond)
	}
	for {
		select {
		case <-worked:
			return true
		case <-ended:
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

func (u *Upstream) update(what func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	what()
}

// Open ends all hits with a name, including future ones.
func (u *Upstream) Open(name string) {
	u.update(func() { u.opened[name] = true })
	for _, v := range u.Hits() {
		if v.Name == name {
			v.end()
		}
	}
}

// OpenAll ends all hits that have begun.
func (u *Upstream) OpenAll() {
	for _, v := range u.Hits() {
		v.end()
	}
}

// Hits lists the hits, in the order in which they began.
func (u *Upstream) Hits() (hits []Hit) {
	u.update(func() {
		for _, v := range u.hits {
			hits = append(hits, *v)
		}
	})
	return hits
}

// Leave ends a hit, and returns when the request has left the upstream.
func (v *Hit) Leave() {
	v.end()
	<-v.Gone
}

// Hit returns the first hit with a name, or nil.
func (u *Upstream) Hit(name string) *Hit {
	for _, v := range u.Hits() {
		if v.Name == name {
			return &v
		}
	}
	return nil
}

// Order lists the names of the hits, in the order in which they began.
func (u *Upstream) Order() (names []string) {
	for _, v := range u.Hits() {
		names = append(names, v.Name)
	}
	return names
}

// Next waits for the next request to enter, in the order in which bodies arrive. If names
// are given, it must have one of them.
func (u *Upstream) Next(names ...string) *Hit {
	u.t.Helper()
	select {
	case v := <-u.entered:
		if len(names) > 0 && !slices.Contains(names, v.Name) {
			u.t.Fatalf("%s entered; expected %v", v.Name, names)
		}
		return &v
	case <-time.After(wait.Patience):
		u.t.Fatal("waited in vain for a request to enter")
		return nil
	}
}

// Nobody checks that no other request enters for a moment.
func (u *Upstream) Nobody() {
	u.t.Helper()
	select {
	case v := <-u.entered:
		u.t.Fatalf("%s entered; expected nobody", v.Name)
	case <-time.After(150 * time.Millisecond):
	}
}

// WantNever fails the test if the upstream has seen a hit with this name.
func (u *Upstream) WantNever(name string) {
	u.t.Helper()
	if u.Hit(name) != nil {
		u.t.Errorf("the upstream saw %s", name)
	}
}

// Turns has when each turn was inside, at least: the first and the latest moment at which a site has seen it.
type Turns map[string][2]time.Time

// Saw notes that a turn is inside. Moments come in order.
func (turns Turns) Saw(token string, at time.Time) {
	turns[token] = [2]time.Time{cmp.Or(turns[token][0], at), at}
}

// MostAtOnce is how many turns were inside at one moment, at least.
func (turns Turns) MostAtOnce() (most int) {
	for _, turn := range turns {
		inside := 0
		for _, other := range turns {
			if !other[0].After(turn[0]) && other[1].After(turn[0]) {
				inside++
			}
		}
		most = max(most, inside)
	}
	return most
}

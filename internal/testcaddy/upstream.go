package testcaddy

import (
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
//   - "stream" sends the response continuously, "flood" sends more than any connection
//     buffers, and "status" is the response's status.
type Upstream struct {
	Addr string // host:port

	t       testing.TB
	gated   bool
	entered chan Hit // for Next, once the body has been read

	mu     sync.Mutex
	hits   []*Hit
	inside int
	most   int
	opened map[string]bool
}

// Hit is what is known about a request at an upstream, at the time of the call that
// returned it.
type Hit struct {
	Name      string
	Method    string
	Path      string
	Header    http.Header
	Body      string
	Entered   time.Time
	Left      time.Time // zero while it is inside
	Cancelled bool      // by the proxy

	Gone  chan struct{} // closed when it has left
	leave chan struct{} // closed to end it
	all   *Upstream
}

// NewUpstream starts an upstream that runs until the end of the test.
func NewUpstream(t testing.TB) *Upstream { return newUpstream(t, false) }

// NewGatedUpstream starts an upstream that keeps each request until the test ends it,
// unless the request's query says how long it takes.
func NewGatedUpstream(t testing.TB) *Upstream { return newUpstream(t, true) }

func newUpstream(t testing.TB, gated bool) *Upstream {
	u := &Upstream{t: t, gated: gated, entered: make(chan Hit, 1000), opened: make(map[string]bool)}
	u.Addr = Serve(t, u)
	t.Cleanup(u.OpenAll)
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
	v, query := u.enter(r), r.URL.Query()
	defer u.leave(v)
	body, err := io.ReadAll(r.Body)
	u.update(func() { v.Body = string(body) })
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	u.update(func() {
		select {
		case u.entered <- *v:
		default: // a test with so many hits does not ask for each
		}
	})
	if !u.work(v, w, r) {
		u.update(func() { v.Cancelled = true })
		return
	}
	if status, err := strconv.Atoi(query.Get("status")); err == nil {
		w.WriteHeader(status)
	}
	fmt.Fprintf(w, "served %s", v.Name)
}

func (u *Upstream) enter(r *http.Request) *Hit {
	u.mu.Lock()
	defer u.mu.Unlock()
	query := r.URL.Query()
	v := &Hit{
		Name: query.Get("name"), Method: r.Method, Path: r.URL.Path, Header: r.Header, Entered: time.Now(),
		Gone: make(chan struct{}), leave: make(chan struct{}), all: u,
	}
	if !query.Has("name") {
		v.Name = strings.TrimPrefix(r.URL.Path, "/")
	}
	if u.opened[v.Name] || query.Has("work") || !query.Has("gate") && !u.gated {
		close(v.leave)
	}
	u.hits = append(u.hits, v)
	u.inside++
	u.most = max(u.most, u.inside)
	return v
}

// work does what the request asks for. It reports whether it finished.
func (u *Upstream) work(v *Hit, w io.Writer, r *http.Request) bool {
	query := r.URL.Query()
	var worked, tick <-chan time.Time
	leave := v.leave
	if work, err := time.ParseDuration(query.Get("work")); err == nil {
		worked, leave = time.After(work), nil
	}
	chunk := make([]byte, 64<<10)
	if query.Has("flood") {
		chunk = make([]byte, 4<<20)
	}
	if query.Has("stream") || query.Has("flood") {
		tick = time.Tick(10 * time.Millisecond)
	}
	for {
		select {
		case <-worked:
			return true
		case <-leave:
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

func (u *Upstream) leave(v *Hit) {
	u.mu.Lock()
	defer u.mu.Unlock()
	v.Left = time.Now()
	u.inside--
	close(v.Gone)
}

func (u *Upstream) update(what func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	what()
}

// letGoLocked ends a hit.
func (v *Hit) letGoLocked() {
	select {
	case <-v.leave:
	default:
		close(v.leave)
	}
}

// Open ends all hits with a name, including future ones.
func (u *Upstream) Open(name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.opened[name] = true
	for _, v := range u.hits {
		if v.Name == name {
			v.letGoLocked()
		}
	}
}

// OpenAll ends all hits that have begun.
func (u *Upstream) OpenAll() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, v := range u.hits {
		v.letGoLocked()
	}
}

// Leave ends a hit, and returns when the request has left the upstream.
func (v *Hit) Leave() {
	v.all.update(v.letGoLocked)
	<-v.Gone
}

// Hit returns the first hit with a name, or nil.
func (u *Upstream) Hit(name string) *Hit {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, v := range u.hits {
		if v.Name == name {
			now := *v
			return &now
		}
	}
	return nil
}

// Order lists the names of the hits, in the order in which they began.
func (u *Upstream) Order() (names []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, v := range u.hits {
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

// Follow goes step by step: "+0 1" waits until 0 and 1 have entered and checks that nobody
// else does, and "-0" lets 0 leave.
func (u *Upstream) Follow(steps ...string) {
	u.t.Helper()
	inside := make(map[string]*Hit)
	for _, step := range steps {
		names := strings.Fields(step[1:])
		for _, name := range names {
			if step[0] == '-' {
				inside[name].Leave()
				continue
			}
			v := u.Next(names...)
			inside[v.Name] = v
		}
		if step[0] == '+' {
			u.Nobody()
		}
	}
}

// AwaitEntry waits until the hit with a name has begun.
func (u *Upstream) AwaitEntry(name string) (v *Hit) {
	u.t.Helper()
	wait.Eventually(u.t, name+" has entered", func() error {
		if v = u.Hit(name); v == nil {
			return fmt.Errorf("there were %v", u.Order())
		}
		return nil
	})
	return v
}

// WantOrder fails the test unless exactly these hits began, in this order.
func (u *Upstream) WantOrder(names ...string) {
	u.t.Helper()
	if got := u.Order(); !slices.Equal(got, names) {
		u.t.Errorf("the upstream saw %v, want %v", got, names)
	}
}

// WantNever fails the test if the upstream has seen a hit with this name.
func (u *Upstream) WantNever(name string) {
	u.t.Helper()
	if u.Hit(name) != nil {
		u.t.Errorf("the upstream saw %s", name)
	}
}

// WantAlone fails the test if two hits overlapped.
func (u *Upstream) WantAlone() {
	u.t.Helper()
	u.update(func() {
		if u.most > 1 {
			u.t.Errorf("%d requests were in the upstream at the same time", u.most)
		}
	})
}

// WantTokensGrow fails the test unless the fencing tokens, in the header X-Token,
// grew from hit to hit.
func (u *Upstream) WantTokensGrow() {
	u.t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	var last uint64
	for _, v := range u.hits {
		token, err := strconv.ParseUint(v.Header.Get("X-Token"), 10, 64)
		if err != nil || token <= last {
			u.t.Fatalf("hit %s has the token %q after %d", v.Name, v.Header.Get("X-Token"), last)
		}
		last = token
	}
}

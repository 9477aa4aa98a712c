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
)

// Upstream is what a queue protects: a server that notes who is inside when, on
// the monotonic clock of the test. The query of a request says what is to be
// done with it:
//
//   - "name" names the visit; without it, the path does, without the slash.
//   - "work" is how long it takes; with "gate", it takes until the test lets it
//     go with [Upstream.Open] or [Visit.Leave].
//   - "stream" sends the answer all the while, "flood" more than any connection
//     holds, and "status" is its status.
//   - With "deaf", it looks neither at the body nor whether it is cancelled.
type Upstream struct {
	Addr string // host:port

	t       testing.TB
	gated   bool
	entered chan Visit // for Next, when the body is there

	mu     sync.Mutex
	visits []*Visit
	inside int
	most   int
	opened map[string]bool
}

// Visit is what is known of a request that has come to an upstream, at the time
// when it was asked for.
type Visit struct {
	Name      string
	Method    string
	Path      string
	Header    http.Header
	Body      string
	Entered   time.Time
	Left      time.Time // zero while it is inside
	Cancelled bool      // by the proxy

	Gone  chan struct{} // closed when it has left
	leave chan struct{} // closed to let it go
	all   *Upstream
}

// NewUpstream makes one, until the end of the test.
func NewUpstream(t testing.TB) *Upstream { return newUpstream(t, false) }

// NewGatedUpstream makes one that keeps each request until the test lets it go,
// unless its query says how long it takes.
func NewGatedUpstream(t testing.TB) *Upstream { return newUpstream(t, true) }

func newUpstream(t testing.TB, gated bool) *Upstream {
	u := &Upstream{t: t, gated: gated, entered: make(chan Visit, 1000), opened: make(map[string]bool)}
	u.Addr = Serve(t, u)
	t.Cleanup(u.OpenAll)
	return u
}

// Serve serves HTTP until the end of the test, and returns host and port. Requests
// that are still being handled then are cancelled.
func Serve(t testing.TB, handler http.Handler) (addr string) {
	return serve(t, handler, (*httptest.Server).Start)
}

// ServeTLS is like [Serve], for HTTPS.
func ServeTLS(t testing.TB, handler http.Handler) (addr string) {
	return serve(t, handler, (*httptest.Server).StartTLS)
}

func serve(t testing.TB, handler http.Handler, start func(*httptest.Server)) (addr string) {
	server := httptest.NewUnstartedServer(handler)
	start(server)
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
	if !query.Has("deaf") {
		body, err := io.ReadAll(r.Body)
		u.update(func() { v.Body = string(body) })
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	}
	u.announce(v)
	if !u.work(v, w, r) {
		u.update(func() { v.Cancelled = true })
		return
	}
	if status, err := strconv.Atoi(query.Get("status")); err == nil {
		w.WriteHeader(status)
	}
	fmt.Fprintf(w, "served %s", v.Name)
}

func (u *Upstream) enter(r *http.Request) *Visit {
	u.mu.Lock()
	defer u.mu.Unlock()
	query := r.URL.Query()
	v := &Visit{
		Name: query.Get("name"), Method: r.Method, Path: r.URL.Path, Header: r.Header, Entered: time.Now(),
		Gone: make(chan struct{}), leave: make(chan struct{}), all: u,
	}
	if !query.Has("name") {
		v.Name = strings.TrimPrefix(r.URL.Path, "/")
	}
	if u.opened[v.Name] || query.Has("work") || !query.Has("gate") && !u.gated {
		close(v.leave)
	}
	u.visits = append(u.visits, v)
	u.inside++
	u.most = max(u.most, u.inside)
	return v
}

// announce tells Next of a visit.
func (u *Upstream) announce(v *Visit) {
	u.mu.Lock()
	defer u.mu.Unlock()
	select {
	case u.entered <- *v:
	default: // a test that lets so many in does not ask for each
	}
}

// work does what the request asks for. It reports whether it came to its end.
func (u *Upstream) work(v *Visit, w io.Writer, r *http.Request) bool {
	query := r.URL.Query()
	var worked, tick <-chan time.Time
	leave, cancelled := v.leave, r.Context().Done()
	if work, err := time.ParseDuration(query.Get("work")); err == nil {
		worked, leave = time.After(work), nil
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
	if query.Has("deaf") {
		cancelled = nil
	}
	for {
		select {
		case <-worked:
			return true
		case <-leave:
			return true
		case <-cancelled:
			return false
		case <-tick:
			if _, err := w.Write(chunk); err != nil {
				return false
			}
		}
	}
}

func (u *Upstream) leave(v *Visit) {
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

// letGoLocked lets a visit end.
func (v *Visit) letGoLocked() {
	select {
	case <-v.leave:
	default:
		close(v.leave)
	}
}

// Open lets all visits of a name end, also those still to come.
func (u *Upstream) Open(name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.opened[name] = true
	for _, v := range u.visits {
		if v.Name == name {
			v.letGoLocked()
		}
	}
}

// OpenAll lets all visits end that have begun.
func (u *Upstream) OpenAll() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, v := range u.visits {
		v.letGoLocked()
	}
}

// Leave lets a request go and returns when it has left the upstream.
func (v *Visit) Leave() {
	v.all.update(v.letGoLocked)
	<-v.Gone
}

// Visit returns the first visit of a name, or nil.
func (u *Upstream) Visit(name string) *Visit {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, v := range u.visits {
		if v.Name == name {
			now := *v
			return &now
		}
	}
	return nil
}

// Order lists the names of the visits as they began.
func (u *Upstream) Order() (names []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, v := range u.visits {
		names = append(names, v.Name)
	}
	return names
}

// Most is how many were inside together at most.
func (u *Upstream) Most() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.most
}

// Next waits for the next request to enter, in the order in which their bodies
// are there.
func (u *Upstream) Next() *Visit {
	u.t.Helper()
	select {
	case v := <-u.entered:
		return &v
	case <-time.After(Patience):
		u.t.Fatal("waited in vain for a request to enter")
		return nil
	}
}

// NextNamed waits for the next request to enter, which must have that name.
func (u *Upstream) NextNamed(name string) *Visit {
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

// AwaitEntry waits until the visit of a name has begun.
func (u *Upstream) AwaitEntry(name string) *Visit {
	u.t.Helper()
	return u.await(name+" has entered", name, func(*Visit) bool { return true })
}

// AwaitExit waits until the visit of a name has ended.
func (u *Upstream) AwaitExit(name string) *Visit {
	u.t.Helper()
	return u.await(name+" has left", name, func(v *Visit) bool { return !v.Left.IsZero() })
}

func (u *Upstream) await(what, name string, so func(*Visit) bool) (v *Visit) {
	u.t.Helper()
	Eventually(u.t, what, func() error {
		if v = u.Visit(name); v == nil || !so(v) {
			return fmt.Errorf("there were %v", u.Order())
		}
		return nil
	})
	return v
}

// WantOrder fails the test unless the visits began in this order, and there
// were no others.
func (u *Upstream) WantOrder(names ...string) {
	u.t.Helper()
	if got := u.Order(); !slices.Equal(got, names) {
		u.t.Errorf("the upstream saw %v, want %v", got, names)
	}
}

// WantNever fails the test if the upstream has seen a visit of this name.
func (u *Upstream) WantNever(name string) {
	u.t.Helper()
	if u.Visit(name) != nil {
		u.t.Errorf("the upstream saw %s", name)
	}
}

// WantAlone fails the test if two visits overlapped.
func (u *Upstream) WantAlone() {
	u.t.Helper()
	if most := u.Most(); most > 1 {
		u.t.Errorf("%d requests were in the upstream at the same time", most)
	}
}

// WantTokensGrow fails the test unless the fencing tokens, in the header X-Token,
// grew from visit to visit.
func (u *Upstream) WantTokensGrow() {
	u.t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	var last uint64
	for _, v := range u.visits {
		token, err := strconv.ParseUint(v.Header.Get("X-Token"), 10, 64)
		if err != nil || token <= last {
			u.t.Fatalf("visit %s has the token %q after %d", v.Name, v.Header.Get("X-Token"), last)
		}
		last = token
	}
}

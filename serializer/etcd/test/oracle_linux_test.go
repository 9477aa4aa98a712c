package test

import (
	"math"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"
)

// oracle is the upstream behind the queue. It records who is inside from when to when, on
// its own clock.
type oracle struct {
	*testlease.History // as far as the queue vouches for it

	mu       sync.Mutex
	inside   map[*hold]bool
	visits   []*hold
	overlaps int // with another
	entries  int
	entered  *sync.Cond
}

// hold is one visit.
type hold struct {
	*testlease.Hold
	left   time.Duration // since the oracle began
	forced time.Duration // when its Caddy was stopped or killed; 0 is never
	kept   bool          // holds until its request is cancelled
}

func newOracle() *oracle {
	o := &oracle{History: testlease.NewHistory(), inside: make(map[*hold]bool)}
	o.entered = sync.NewCond(&o.mu)
	return o
}

// serve listens at a path: a unix socket can be reached from all network
// namespaces, whatever is done to the links between them.
func (o *oracle) serve(t *testing.T, path string) {
	t.Helper()
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: o}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Close() })
}

// ServeHTTP is a visit, of a few milliseconds.
func (o *oracle) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, err := strconv.ParseUint(r.Header.Get("Token"), 10, 64)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	client, _ := strconv.Atoi(r.Header.Get("Client"))
	asked, _ := strconv.ParseInt(r.Header.Get("Asked"), 10, 64)
	s := &hold{Hold: o.Asks(client), left: math.MaxInt64}
	s.Asked = time.Duration(asked)
	o.enter(s, token)
	defer o.leave(s)
	for i := 0; i < 3 || o.kept(s); i++ {
		select {
		case <-r.Context().Done():
			return
		case <-time.After(time.Millisecond):
		}
	}
}

func (o *oracle) enter(s *hold, token uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.Enter(s.Hold, token)
	o.entries++
	if len(o.inside) > 0 {
		o.overlaps++
	}
	o.inside[s] = true
	o.visits = append(o.visits, s)
	o.entered.Broadcast()
}

func (o *oracle) leave(s *hold) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.Leave(s.Hold)
	s.left = o.Now()
	delete(o.inside, s)
}

func (o *oracle) kept(s *hold) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return s.kept
}

// catch keeps a visit inside until its request is cancelled, and returns it.
func (o *oracle) catch() *hold {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.inside) != 1 {
		o.entered.Wait()
	}
	for s := range o.inside {
		s.kept = true
		return s
	}
	return nil
}

// next waits for somebody to enter after a moment, and returns when that was.
func (o *oracle) next(after time.Duration) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		if last := o.visits[len(o.visits)-1]; last.Came > after {
			for _, s := range o.visits {
				if s.Came > after {
					return s.Came
				}
			}
		}
		o.entered.Wait()
	}
}

// gone reports whether a visit has ended.
func (o *oracle) gone(s *hold) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.inside[s]
}

// after counts the entries after a moment.
func (o *oracle) after(moment time.Duration) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.visits {
		if s.Came > moment {
			n++
		}
	}
	return n
}

// longestGap is the longest time between two entries after a moment.
func (o *oracle) longestGap(since time.Duration) (gap time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.visits {
		if s.Came > since {
			gap = max(gap, s.Came-since)
			since = s.Came
		}
	}
	return gap
}

// force notes that the Caddy of a hold was stopped or killed: from now on, the
// queue cannot vouch for it.
func (o *oracle) force(s *hold) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s.forced = o.Now()
	o.Leave(s.Hold)
}

package test

import (
	"math"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// oracle is the upstream behind the queue. It records who is inside from when to when, on
// its own clock.
type oracle struct {
	start time.Time

	mu       sync.Mutex
	inside   map[*hold]bool
	history  []*hold
	overlaps int // with another
	entries  int
	entered  *sync.Cond
}

// hold is one visit.
type hold struct {
	client     int
	token      uint64
	asked      time.Duration // since the oracle began
	came, went time.Duration
	forced     time.Duration // when its Caddy was stopped or killed; 0 is never
	kept       bool          // holds until its request is cancelled
}

func newOracle() *oracle {
	o := &oracle{start: time.Now(), inside: make(map[*hold]bool)}
	o.entered = sync.NewCond(&o.mu)
	return o
}

func (o *oracle) now() time.Duration { return time.Since(o.start) }

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
	s := &hold{client: client, token: token, asked: time.Duration(asked)}
	o.enter(s)
	defer o.leave(s)
	for i := 0; i < 3 || o.kept(s); i++ {
		select {
		case <-r.Context().Done():
			return
		case <-time.After(time.Millisecond):
		}
	}
}

func (o *oracle) enter(s *hold) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s.came, s.went = o.now(), math.MaxInt64
	o.entries++
	if len(o.inside) > 0 {
		o.overlaps++
	}
	o.inside[s] = true
	o.history = append(o.history, s)
	o.entered.Broadcast()
}

func (o *oracle) leave(s *hold) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s.went = o.now()
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
		if last := o.history[len(o.history)-1]; last.came > after {
			for _, s := range o.history {
				if s.came > after {
					return s.came
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
	for _, s := range o.history {
		if s.came > moment {
			n++
		}
	}
	return n
}

// longestGap is the longest time between two entries after a moment.
func (o *oracle) longestGap(since time.Duration) (gap time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.history {
		if s.came > since {
			gap = max(gap, s.came-since)
			since = s.came
		}
	}
	return gap
}

// force notes that the Caddy of a hold was stopped or killed: from now on, the
// queue cannot vouch for it.
func (o *oracle) force(s *hold) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s.forced = o.now()
}

// lock is the state of porcupine's model: who holds the queue, and the greatest token so
// far.
type lock struct{ holder, greatest uint64 }

// operation is an entry or a leaving.
type operation struct {
	leaves bool
	token  uint64
}

// lockModel is a lock that is taken by one at a time, in the order of tokens.
var lockModel = porcupine.Model{
	Init: func() any { return lock{} },
	Step: func(state, input, _ any) (bool, any) {
		l, op := state.(lock), input.(operation)
		if op.leaves {
			return l.holder == op.token, lock{0, l.greatest}
		}
		return l.holder == 0 && op.token > l.greatest, lock{op.token, op.token}
	},
}

// judge has porcupine look for an order of all entries and leavings in which
// at most one holds the lock. An entry lies between the request and the
// arrival behind the queue. A leaving lies anywhere after the visit has ended,
// or after its Caddy was stopped or killed, or its turn was revoked.
func (o *oracle) judge() porcupine.CheckResult {
	o.mu.Lock()
	defer o.mu.Unlock()
	var operations []porcupine.Operation
	for i, s := range o.history {
		went := s.went
		if s.forced > 0 {
			went = min(went, s.forced)
		}
		operations = append(operations, porcupine.Operation{ClientId: s.client, Input: operation{false, s.token}, Call: int64(s.asked), Return: int64(s.came)})
		if went == math.MaxInt64 {
			continue // still there
		}
		operations = append(operations, porcupine.Operation{ClientId: len(o.history) + i, Input: operation{true, s.token}, Call: int64(went), Return: math.MaxInt64})
	}
	return porcupine.CheckOperationsTimeout(lockModel, operations, time.Minute)
}

// The harness must detect what it is meant to detect.
func TestOracle(t *testing.T) {
	visit := func(token uint64, asked, came, went, forced time.Duration) *hold {
		return &hold{token: token, asked: asked, came: came, went: went, forced: forced}
	}
	for name, test := range map[string]struct {
		history []*hold
		ok      bool
	}{
		"one after the other":           {[]*hold{visit(1, 0, 1, 2, 0), visit(2, 0, 3, 4, 0)}, true},
		"overlap":                       {[]*hold{visit(1, 0, 1, 4, 0), visit(2, 0, 3, 5, 0)}, false},
		"overlap with one that stopped": {[]*hold{visit(1, 0, 1, 4, 2), visit(2, 0, 3, 5, 0)}, true},
		"overlap before it stopped":     {[]*hold{visit(1, 0, 1, 6, 5), visit(2, 0, 3, 4, 0)}, false},
		"inversion":                     {[]*hold{visit(2, 0, 1, 2, 0), visit(1, 0, 3, 4, 0)}, false},
	} {
		o := newOracle()
		o.history = test.history
		if result := o.judge(); (result == porcupine.Ok) != test.ok {
			t.Errorf("%s: %s", name, result)
		}
	}
}

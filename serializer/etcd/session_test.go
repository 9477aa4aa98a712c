package etcd

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// suspended is a clock that jumps while timers stand still, as a clock that
// counts suspended time does.
type suspended struct {
	mu   sync.Mutex
	time time.Duration
}

func (c *suspended) now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.time
}

func (c *suspended) sleep(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.time += d
}

// suspendedSession is a session with a lease of ten seconds, and no cluster.
func suspendedSession(t *testing.T) (*Engine, *session, *suspended) {
	t.Helper()
	clock := new(suspended)
	c, err := newCluster([]string{"http://127.0.0.1:1"}, nil, "", "", time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	e := &Engine{keys: "o/", cluster: c, clock: clock.now, now: time.Now, log: slog.New(slog.DiscardHandler), changed: make(chan struct{})}
	e.ctx, e.stop = context.WithCancel(context.Background())
	t.Cleanup(e.stop)
	s := &session{engine: e, id: 1, queues: make(map[string]*ticketQueue), tickets: make(map[string]*ticket), leaving: make(map[string]int64)}
	s.ctx, s.end = context.WithCancel(e.ctx)
	e.session = s
	e.mu.Lock()
	defer e.mu.Unlock()
	s.extendLocked(0, 10)
	return e, s, clock
}

func (s *session) waiter() *ticket {
	e := s.engine
	q := &ticketQueue{session: s, name: "q", prefix: e.keys.queue("q"), remote: make(map[string]*ticket), changed: make(chan struct{}, 1)}
	e.mu.Lock()
	defer e.mu.Unlock()
	s.queues["q"] = q
	t := s.newTicketLocked(serializer.Arrival{Queue: "q"})
	q.joinLocked(t, 5)
	q.covered = 5
	return t
}

// After a suspend, the lease may have expired although no timer has fired.
// Nobody may enter then. Bug: a caller whose turn came just before the suspend
// entered.
func TestSuspendedWhileWaiting(t *testing.T) {
	for name, test := range map[string]struct {
		before, after time.Duration // the turn
		enters        bool
	}{
		"no suspend":              {0, 0, true},
		"short suspend":           {time.Second, time.Second, true},
		"suspend before the turn": {time.Minute, 0, false},
		"suspend after the turn":  {0, time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			e, s, clock := suspendedSession(t)
			w := s.waiter()
			clock.sleep(test.before)
			e.mu.Lock()
			w.queue.updateLocked()
			granted := w.granted
			e.mu.Unlock()
			clock.sleep(test.after)
			if enters := granted && e.holds(w); enters != test.enters {
				t.Errorf("enters: %t, want %t", enters, test.enters)
			}
		})
	}
}

// Timers that stood still must not keep a request inside after its lease: the
// engine regularly reads a clock that keeps running.
func TestSuspendedInside(t *testing.T) {
	e, s, clock := suspendedSession(t)
	w := s.waiter()
	revoked := make(chan error, 1)
	w.arrival.Revoke = func(err error) { revoked <- err }
	e.mu.Lock()
	w.queue.updateLocked()
	e.mu.Unlock()
	clock.sleep(time.Minute)
	select {
	case err := <-revoked:
		if !errors.Is(err, serializer.ErrLost) {
			t.Errorf("revoked with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("still inside long after the lease")
	}
}

// Bug: the engine read the user's clock and wrote to the user's log while it held its
// lock. A function that asks the engine anything then stopped all queues.
func TestFunctionsOfUserWithoutLock(t *testing.T) {
	e, s, _ := suspendedSession(t)
	s.pauses = make(map[string]knownPause)
	var clock, log atomic.Int64
	called := func(what string, calls *atomic.Int64) {
		calls.Add(1)
		free := make(chan struct{})
		go func() {
			e.Count("q")
			close(free)
		}()
		select {
		case <-free:
		case <-time.After(10 * time.Second):
			t.Errorf("the %s is called under the lock", what)
		}
	}
	e.now = func() time.Time {
		called("clock", &clock)
		return time.Now()
	}
	e.log = slog.New(slog.NewTextHandler(writer(func() { called("log", &log) }), nil))
	if _, err := e.arrive(s, serializer.Arrival{Queue: "q"}); err != nil {
		t.Error(err)
	}
	value := []byte(newRecord("test", serializer.Arrival{}, time.Time{}))
	s.state("q", []*mvccpb.KeyValue{{Key: []byte(e.keys.ticket("q", s.id, 1)), CreateRevision: 7, Value: value}}, nil)
	pause := &mvccpb.KeyValue{Key: []byte(e.keys.pause("q")), Value: []byte("?")}
	s.takePauses([]*mvccpb.KeyValue{pause}, 8)
	s.handlePauses([]*mvccpb.Event{{Type: mvccpb.Event_PUT, Kv: pause}})
	if clock.Load() < 2 || log.Load() < 2 {
		t.Errorf("called the clock %d times, the log %d times", clock.Load(), log.Load())
	}
}

// writer is called for each line that is written.
type writer func()

func (w writer) Write(line []byte) (int, error) {
	w()
	return len(line), nil
}

// The clock must advance with the machine's.
func TestUptime(t *testing.T) {
	before := uptime()
	time.Sleep(time.Millisecond)
	if passed := uptime() - before; passed < time.Millisecond {
		t.Errorf("%s passed in a millisecond", passed)
	}
}

// etcd refuses a request that puts a key twice, or puts one in a range that it
// deletes. Bug: such a batch stopped all deletions.
func TestDeletionsThatShareARequest(t *testing.T) {
	q := testQueue()
	leaves := func(key string, rev int64) deletion { return deletion{queue: q, key: key, rev: rev} }
	marks := deletion{key: "o/!left/q/1-", end: "o/!left/q/1."}
	many := make([]deletion, 2*deleteBatch)
	for i := range many {
		many[i] = leaves(strconv.Itoa(i), 1)
	}
	for name, test := range map[string]struct {
		deletions []deletion
		share     int
	}{
		"none":                         {nil, 0},
		"two tickets":                  {[]deletion{leaves("a", 1), leaves("b", 2)}, 2},
		"a key used again":             {[]deletion{leaves("a", 1), leaves("b", 2), leaves("a", 3)}, 2},
		"marks, then a new ticket":     {[]deletion{marks, leaves("o/q/1-1", 3)}, 1},
		"a ticket, then all marks":     {[]deletion{leaves("o/q/1-1", 3), marks}, 1},
		"marks of several queues":      {[]deletion{marks, {key: "x", end: "y"}}, 2},
		"more than a request may hold": {many, deleteBatch},
	} {
		t.Run(name, func(t *testing.T) {
			if share := batchSize(test.deletions); share != test.share {
				t.Errorf("%d share a request, want %d", share, test.share)
			}
		})
	}
}

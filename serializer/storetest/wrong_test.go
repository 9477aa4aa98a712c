package storetest_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testmutant"
	"github.com/orderly-http/caddy-orderly/serializer/storetest"
)

// Each store that is wrong in one way fails the case that is named beside it, and each case
// finds something.
func TestWrongStores(t *testing.T) {
	useful := make(map[string]bool)
	for _, c := range []struct {
		wrong string
		found string // the case
		make  func(*wrongStore)
	}{
		{"numbers shrink", "numbers", func(s *wrongStore) { s.right.db.number = func(last uint64) uint64 { return 1<<40 - last } }},
		{"a batch is turned round", "numbers", func(s *wrongStore) { s.DoAppend = s.appendReversed }},
		{"an own ticket joins before it is published", "joined is published", func(s *wrongStore) { s.Events.OnAppeared = s.appearOncePublished }},
		{"own tickets appear as remote ones", "numbers", func(s *wrongStore) { s.Events.OnJoined = s.joinAndAppear }},
		{"tickets appear twice", "tickets of others", func(s *wrongStore) { s.Events.OnAppeared = s.appearTwice }},
		{"the rule is lost", "tickets of others", func(s *wrongStore) { s.falsify(func(t *serializer.Ticket) { t.Rule = serializer.Rule{} }) }},
		{"the client is lost", "tickets of others", func(s *wrongStore) { s.falsify(func(t *serializer.Ticket) { t.Client = "" }) }},
		{"the owner is lost", "tickets of others", func(s *wrongStore) { s.falsify(func(t *serializer.Ticket) { t.Owner = nil }) }},
		{"the time is lost", "tickets of others", func(s *wrongStore) { s.falsify(func(t *serializer.Ticket) { t.Arrived = time.Time{} }) }},
		{"paths differ", "tickets of others", func(s *wrongStore) { s.path = s.right.owner.Name }},
		{"tickets vanish at once", "tickets of others", func(s *wrongStore) { s.Events.OnAppeared = s.appearAndVanish }},
		{"removal is ignored", "history of engines", func(s *wrongStore) { s.DoRemove = func(*serializer.Ticket) {} }},
		{"vanished tickets are not reported", "history of engines", func(s *wrongStore) { s.Events.OnVanished = func(*serializer.Ticket) {} }},
		{"an unwanted ticket stays", "unwanted tickets", func(s *wrongStore) {
			s.Events.OnJoined = func(t *serializer.Ticket) bool { _ = s.Events.Events.Joined(t); return true }
		}},
		{"refused tickets are reported later", "refused tickets", func(s *wrongStore) { s.DoAppend = s.refuseAndAppend }},
		{"a refusal is no error", "refused tickets", func(s *wrongStore) {
			s.DoAppend = func(ctx context.Context, tickets []*serializer.Ticket) error {
				_ = s.right.Append(ctx, tickets)
				return nil
			}
		}},
		{"what was there is not reported", "following later", func(s *wrongStore) {
			s.Events.OnAppeared = func(t *serializer.Ticket) {
				if t.Arrived.After(s.since) {
					s.Events.Events.Appeared(t)
				}
			}
		}},
		{"what was there comes with another rule", "following later", func(s *wrongStore) {
			s.falsify(func(t *serializer.Ticket) {
				if t.Arrived.Before(s.since) {
					t.Rule = serializer.Rule{}
				}
			})
		}},
		{"pauses are reported too late", "following later", func(s *wrongStore) { s.Events.OnPaused = s.pauseLate }},
		{"nobody is inside", "history of engines", func(s *wrongStore) { s.DoInside = func(*serializer.Ticket) bool { return false } }},
		{"all are inside", "history of engines", func(s *wrongStore) { s.DoInside = func(*serializer.Ticket) bool { return true } }},
		{"another process ignores a pause", "pause", func(s *wrongStore) { s.Events.OnPaused = s.pauseOwn }},
		{"Pause returns too early", "pause", func(s *wrongStore) {
			s.DoPause = func(_ context.Context, name string, until time.Time) error {
				time.AfterFunc(50*time.Millisecond, func() { _ = s.right.Pause(context.Background(), name, until) })
				return nil
			}
		}},
		{"a * is taken away", "pause", func(s *wrongStore) {
			s.DoPause = func(ctx context.Context, name string, until time.Time) error {
				return s.right.Pause(ctx, strings.TrimSuffix(name, "*"), until)
			}
		}},
		{"a pause does not end", "pause", func(s *wrongStore) { s.Events.OnPaused = s.pauseForGood }},
		{"an eviction gets lost", "eviction", func(s *wrongStore) { s.DoEvict = func(context.Context, *serializer.Ticket) error { return nil } }},
		{"another ticket is evicted, too", "eviction", func(s *wrongStore) { s.DoEvict = s.evictAll }},
		{"evicting what is not there succeeds", "eviction", func(s *wrongStore) {
			s.DoEvict = func(ctx context.Context, t *serializer.Ticket) error { _ = s.right.Evict(ctx, t); return nil }
		}},
		{"Close forgets removals", "closing", func(s *wrongStore) {
			s.DoRemove = func(t *serializer.Ticket) { s.later(func() { s.right.Remove(t) }) }
		}},
		{"something is reported after Close", "closing", func(s *wrongStore) {
			s.DoClose = func() error {
				s.later(func() { s.Events.Paused("a_", serializer.Forever) })
				return s.right.Close()
			}
		}},
		{"names are trimmed", "queue names", func(s *wrongStore) {
			s.falsify(func(t *serializer.Ticket) { t.Queue = strings.TrimSpace(t.Queue) })
		}},
		{"nobody hears of others", "history of engines", func(s *wrongStore) { s.Events.OnAppeared = func(*serializer.Ticket) {} }},
		{"numbers are given late", "history of engines", func(s *wrongStore) {
			s.DoAppend = func(ctx context.Context, tickets []*serializer.Ticket) error {
				if tickets[0].Client[len(tickets[0].Client)-1]%2 == 1 {
					return serializer.ErrNotNow
				}
				return s.right.Append(ctx, tickets)
			}
		}},
		{"tickets vanish while they are held", "history of engines", func(s *wrongStore) { s.Events.OnAppeared = s.appearAndVanish }},
	} {
		useful[c.found] = true
		t.Run(c.wrong, func(t *testing.T) {
			t.Parallel()
			complaints := findWrong(t, c.found, c.make)
			if len(complaints) == 0 {
				t.Errorf("case %q found nothing wrong", c.found)
			}
			t.Logf("%d complaints; the first: %q", len(complaints), complaints[:min(1, len(complaints))])
		})
	}
	for _, name := range storetest.Cases() {
		if !useful[name] {
			t.Errorf("case %q finds no wrong store", name)
		}
	}
}

// findWrong runs a case on two stores that are wrong in the same way, and returns its
// complaints.
func findWrong(t *testing.T, name string, change func(*wrongStore)) []string {
	listener := &listener{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer listener.cleanUp()
		o := storetest.Options{Patience: time.Second / 2, Seed: 1}
		storetest.RunCase(listener, name, o, func(testing.TB, int) []serializer.Store { return openWrong(change) })
	}()
	<-done
	listener.mu.Lock()
	defer listener.mu.Unlock()
	return listener.complaints
}

// Bug: what a store reported after its case had failed made the test panic, which hid the failure.
func TestReportAfterFailure(t *testing.T) {
	listener, o := &listener{TB: t}, storetest.Options{Patience: time.Millisecond}
	var wrong *wrongStore
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer listener.cleanUp()
		storetest.RunCase(listener, "numbers", o, func(testing.TB, int) []serializer.Store {
			return openWrong(func(s *wrongStore) { wrong, s.DoRemove = s, func(*serializer.Ticket) {} })
		})
	}()
	<-done
	complaints := len(listener.complaints)
	wrong.Events.Lost(serializer.ErrLost)
	if now := len(listener.complaints); complaints == 0 || now != complaints {
		t.Errorf("%d complaints, then %d", complaints, now)
	}
}

// listener hears the complaints of a case, so that the test itself goes on.
type listener struct {
	testing.TB
	mu         sync.Mutex
	complaints []string
	cleanups   []func()
}

func (l *listener) Errorf(format string, args ...any) { l.Error(fmt.Sprintf(format, args...)) }

func (l *listener) Error(args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.complaints = append(l.complaints, fmt.Sprint(args...))
}

func (l *listener) Fatalf(format string, args ...any) { l.Fatal(fmt.Sprintf(format, args...)) }

func (l *listener) Fatal(args ...any) {
	l.Error(args...)
	runtime.Goexit()
}

func (l *listener) Failed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.complaints) > 0
}

func (l *listener) Logf(string, ...any) {}
func (l *listener) Helper()             {}
func (l *listener) Cleanup(f func())    { l.cleanups = append(l.cleanups, f) }

// cleanUp calls the cleanups. Each may end early.
func (l *listener) cleanUp() {
	for _, f := range slices.Backward(l.cleanups) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			f()
		}()
		<-done
	}
}

// openWrong opens two stores on a database.
func openWrong(change func(*wrongStore)) []serializer.Store {
	db, shared := NewDatabase(), new(delayed)
	open := func(owner string) *wrongStore {
		s := &wrongStore{right: Open(db, owner), delayed: shared, path: "table:tickets"}
		s.Store = testmutant.New(s.right, func(*testmutant.Store) { change(s) })
		return s
	}
	first, second := open("first"), open("second")
	first.other, second.other = second, first
	return []serializer.Store{first, second}
}

// delayed is what happens too late: with the next Sync of any store.
type delayed struct {
	mu    sync.Mutex
	calls []func()
}

func (d *delayed) later(call func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, call)
}

func (d *delayed) catchUp() {
	d.mu.Lock()
	calls := d.calls
	d.calls = nil
	d.mu.Unlock()
	for _, call := range calls {
		call()
	}
}

// wrongStore is a right store, except for what is replaced.
type wrongStore struct {
	*testmutant.Store
	*delayed
	right     *Store
	other     *wrongStore
	path      string
	since     time.Time   // when an engine began to follow it
	appending atomic.Bool // Append is in progress
	pausing   atomic.Bool // Pause or Resume is in progress
}

func (s *wrongStore) Path() string { return s.path }

func (s *wrongStore) Follow(events serializer.Events) {
	s.since = time.Now()
	s.Store.Follow(events)
}

func (s *wrongStore) Append(ctx context.Context, tickets []*serializer.Ticket) error {
	s.appending.Store(true)
	defer s.appending.Store(false)
	return s.Store.Append(ctx, tickets)
}

func (s *wrongStore) Sync(ctx context.Context) error {
	s.catchUp()
	return s.Store.Sync(ctx)
}

func (s *wrongStore) Pause(ctx context.Context, name string, until time.Time) error {
	s.pausing.Store(true)
	defer s.pausing.Store(false)
	return s.Store.Pause(ctx, name, until)
}

func (s *wrongStore) Resume(ctx context.Context, name string) error {
	s.pausing.Store(true)
	defer s.pausing.Store(false)
	return s.Store.Resume(ctx, name)
}

func (s *wrongStore) appendReversed(ctx context.Context, tickets []*serializer.Ticket) error {
	reversed := slices.Clone(tickets)
	slices.Reverse(reversed)
	return s.right.Append(ctx, reversed)
}

// refuseAndAppend issues the tickets that it has refused.
func (s *wrongStore) refuseAndAppend(ctx context.Context, tickets []*serializer.Ticket) error {
	if ctx.Err() != nil {
		s.later(func() { _ = s.right.Append(context.Background(), tickets) })
	}
	return s.right.Append(ctx, tickets)
}

func (s *wrongStore) evictAll(ctx context.Context, t *serializer.Ticket) error {
	return s.right.do(ctx, func(tx *Tx) {
		for number, r := range s.right.db.tickets {
			if r.Queue == t.Queue {
				tx.SetEvict(number)
			}
		}
	})
}

// falsify changes the tickets of others.
func (s *wrongStore) falsify(change func(*serializer.Ticket)) {
	s.Events.OnAppeared = func(t *serializer.Ticket) {
		change(t)
		s.Events.Events.Appeared(t)
	}
}

func (s *wrongStore) joinAndAppear(t *serializer.Ticket) bool {
	wanted := s.Events.Events.Joined(t)
	s.Events.Events.Appeared(t)
	return wanted
}

func (s *wrongStore) appearLate(t *serializer.Ticket) {
	s.later(func() { s.Events.Events.Appeared(t) })
}

// appearOncePublished sees no ticket while its owner appends it.
func (s *wrongStore) appearOncePublished(t *serializer.Ticket) {
	if s.other.appending.Load() {
		s.appearLate(t)
	} else {
		s.Events.Events.Appeared(t)
	}
}

func (s *wrongStore) appearTwice(t *serializer.Ticket) {
	s.Events.Events.Appeared(t)
	s.Events.Events.Appeared(t)
}

func (s *wrongStore) appearAndVanish(t *serializer.Ticket) {
	s.Events.Events.Appeared(t)
	s.Events.Events.Vanished(t)
}

func (s *wrongStore) pauseLate(name string, until time.Time) {
	s.later(func() { s.Events.Events.Paused(name, until) })
}

func (s *wrongStore) pauseOwn(name string, until time.Time) {
	if s.pausing.Load() {
		s.Events.Events.Paused(name, until)
	}
}

func (s *wrongStore) pauseForGood(name string, until time.Time) {
	if !until.IsZero() {
		s.Events.Events.Paused(name, until)
	}
}

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
		{"numbers shrink", "numbers", func(s *wrongStore) { s.db.number = func(last uint64) uint64 { return 1<<40 - last } }},
		{"numbers repeat", "numbers", func(s *wrongStore) { s.db.number = func(last uint64) uint64 { return 1 + last/8 } }},
		{"a batch is turned round", "numbers", func(s *wrongStore) { s.append = s.appendReversed }},
		{"an own ticket joins before smaller ones are reported", "joined is published", func(s *wrongStore) { s.events.appeared = s.events.appearLate }},
		{"an own ticket joins before it is published", "joined is published", func(s *wrongStore) { s.events.appeared = s.events.appearOncePublished }},
		{"own tickets appear as remote ones", "numbers", func(s *wrongStore) { s.events.joined = s.events.joinAndAppear }},
		{"tickets appear twice", "tickets of others", func(s *wrongStore) { s.events.appeared = s.events.appearTwice }},
		{"the rule is lost", "tickets of others", func(s *wrongStore) { s.events.change = func(t *serializer.Ticket) { t.Rule = serializer.Rule{} } }},
		{"the client is lost", "tickets of others", func(s *wrongStore) { s.events.change = func(t *serializer.Ticket) { t.Client = "" } }},
		{"the owner is lost", "tickets of others", func(s *wrongStore) { s.events.change = func(t *serializer.Ticket) { t.Owner = nil } }},
		{"the time is lost", "tickets of others", func(s *wrongStore) { s.events.change = func(t *serializer.Ticket) { t.Arrived = time.Time{} } }},
		{"paths differ", "tickets of others", func(s *wrongStore) { s.path = s.owner.Name }},
		{"tickets vanish at once", "tickets of others", func(s *wrongStore) { s.events.appeared = s.events.appearAndVanish }},
		{"tickets vanish with the next one", "removal", func(s *wrongStore) { s.remove = s.removeWithNext }},
		{"removal is ignored", "removal", func(s *wrongStore) { s.remove = func(*serializer.Ticket) {} }},
		{"vanished tickets are not reported", "removal", func(s *wrongStore) { s.events.vanished = func(*serializer.Ticket) {} }},
		{"an unwanted ticket stays", "unwanted tickets", func(s *wrongStore) {
			s.events.joined = func(t *serializer.Ticket) bool { _ = s.events.Events.Joined(t); return true }
		}},
		{"a refused ticket stays", "refused tickets", func(s *wrongStore) { s.append = s.appendAndRefuse }},
		{"refused tickets are reported later", "refused tickets", func(s *wrongStore) { s.append = s.refuseAndAppend }},
		{"a refusal is no error", "refused tickets", func(s *wrongStore) {
			s.append = func(ctx context.Context, tickets []*serializer.Ticket) error {
				_ = s.Store.Append(ctx, tickets)
				return nil
			}
		}},
		{"what was there is not reported", "following later", func(s *wrongStore) {
			s.events.appeared = func(t *serializer.Ticket) {
				if t.Arrived.After(s.events.since) {
					s.events.Events.Appeared(t)
				}
			}
		}},
		{"what was there comes with another rule", "following later", func(s *wrongStore) {
			s.events.change = func(t *serializer.Ticket) {
				if t.Arrived.Before(s.events.since) {
					t.Rule = serializer.Rule{}
				}
			}
		}},
		{"pauses are reported too late", "following later", func(s *wrongStore) { s.events.paused = s.events.pauseLate }},
		{"nobody is inside", "inside during a pause", func(s *wrongStore) { s.inside = func(*serializer.Ticket) bool { return false } }},
		{"all are inside", "inside during a pause", func(s *wrongStore) { s.inside = func(*serializer.Ticket) bool { return true } }},
		{"another process ignores a pause", "pause", func(s *wrongStore) { s.events.paused = s.events.pauseOwn }},
		{"the end of a pause is rounded", "pause", func(s *wrongStore) {
			s.pause = func(ctx context.Context, name string, until time.Time) error {
				return s.Store.Pause(ctx, name, until.Truncate(time.Hour))
			}
		}},
		{"Pause returns too early", "pause", func(s *wrongStore) {
			s.pause = func(_ context.Context, name string, until time.Time) error {
				s.later(func() { _ = s.Store.Pause(context.Background(), name, until) })
				return nil
			}
		}},
		{"a * is taken away", "pause", func(s *wrongStore) {
			s.pause = func(ctx context.Context, name string, until time.Time) error {
				return s.Store.Pause(ctx, strings.TrimSuffix(name, "*"), until)
			}
		}},
		{"a pause does not end", "end of a pause", func(s *wrongStore) { s.events.paused = s.events.pauseForGood }},
		{"a pause ends too soon", "end of a pause", func(s *wrongStore) { s.pause, s.events.paused = s.pauseShorter, s.events.pauseLonger }},
		{"a pause ends with one that it has replaced", "end of a pause", func(s *wrongStore) { s.pause = s.pauseWithTimer }},
		{"an eviction gets lost", "eviction", func(s *wrongStore) { s.evict = func(context.Context, *serializer.Ticket) error { return nil } }},
		{"another ticket is evicted, too", "eviction", func(s *wrongStore) { s.evict = s.evictAll }},
		{"evicting what is not there succeeds", "eviction", func(s *wrongStore) {
			s.evict = func(ctx context.Context, t *serializer.Ticket) error { _ = s.Store.Evict(ctx, t); return nil }
		}},
		{"Close forgets removals", "closing", func(s *wrongStore) {
			s.remove = func(t *serializer.Ticket) { s.later(func() { s.Store.Remove(t) }) }
		}},
		{"something is reported after Close", "closing", func(s *wrongStore) {
			s.close = func() error {
				s.later(func() { s.events.Paused("a_", serializer.Forever) })
				return s.Store.Close()
			}
		}},
		{"names are trimmed", "queue names", func(s *wrongStore) {
			s.events.change = func(t *serializer.Ticket) { t.Queue = strings.TrimSpace(t.Queue) }
		}},
		{"nobody hears of others", "history of engines", func(s *wrongStore) { s.events.appeared = func(*serializer.Ticket) {} }},
		{"numbers are given late", "no wait", func(s *wrongStore) {
			s.append = func(ctx context.Context, tickets []*serializer.Ticket) error {
				if tickets[0].Client[len(tickets[0].Client)-1]%2 == 1 {
					return serializer.ErrNotNow
				}
				return s.Store.Append(ctx, tickets)
			}
		}},
		{"tickets vanish while they are held", "held turns", func(s *wrongStore) { s.events.appeared = s.events.appearAndVanish }},
		{"nobody hears of others, in a crowd", "many at once", func(s *wrongStore) { s.events.appeared = func(*serializer.Ticket) {} }},
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

// The store that the wrong ones are made of is right.
func TestRightStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Options{}, func(testing.TB, int) []serializer.Store { return openWrong(func(*wrongStore) {}) })
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
func openWrong(change func(*wrongStore)) (stores []serializer.Store) {
	db, shared := NewDatabase(), new(delayed)
	for _, owner := range []string{"first", "second"} {
		s := &wrongStore{Store: Open(db, owner), delayed: shared, path: "table:tickets", change: change}
		s.append, s.remove, s.inside = s.Store.Append, s.Store.Remove, s.Store.Inside
		s.evict, s.pause, s.close = s.Store.Evict, s.Store.Pause, s.Store.Close
		s.events = &wrongEvents{store: s}
		stores = append(stores, s)
	}
	stores[0].(*wrongStore).other, stores[1].(*wrongStore).other = stores[1].(*wrongStore), stores[0].(*wrongStore)
	return stores
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

// wrongStore is a correct store, except for the functions that are replaced.
type wrongStore struct {
	*Store
	*delayed
	change    func(*wrongStore) // makes it wrong
	other     *wrongStore
	events    *wrongEvents
	path      string
	append    func(context.Context, []*serializer.Ticket) error
	remove    func(*serializer.Ticket)
	inside    func(*serializer.Ticket) bool
	evict     func(context.Context, *serializer.Ticket) error
	pause     func(context.Context, string, time.Time) error
	close     func() error
	appending atomic.Bool // Append is in progress
	pausing   atomic.Bool // Pause or Resume is in progress
}

func (s *wrongStore) Path() string                                        { return s.path }
func (s *wrongStore) Remove(t *serializer.Ticket)                         { s.remove(t) }
func (s *wrongStore) Inside(t *serializer.Ticket) bool                    { return s.inside(t) }
func (s *wrongStore) Close() error                                        { return s.close() }
func (s *wrongStore) Evict(c context.Context, t *serializer.Ticket) error { return s.evict(c, t) }

func (s *wrongStore) Follow(events serializer.Events) {
	e := s.events
	e.Events, e.since = events, time.Now()
	e.joined, e.appeared, e.vanished, e.paused = events.Joined, events.Appeared, events.Vanished, events.Paused
	s.change(s)
	s.Store.Follow(e)
}

func (s *wrongStore) Append(ctx context.Context, tickets []*serializer.Ticket) error {
	s.appending.Store(true)
	defer s.appending.Store(false)
	return s.append(ctx, tickets)
}

func (s *wrongStore) Sync(ctx context.Context) error {
	s.catchUp()
	return s.Store.Sync(ctx)
}

func (s *wrongStore) Pause(ctx context.Context, name string, until time.Time) error {
	s.pausing.Store(true)
	defer s.pausing.Store(false)
	return s.pause(ctx, name, until)
}

func (s *wrongStore) Resume(ctx context.Context, name string) error {
	s.pausing.Store(true)
	defer s.pausing.Store(false)
	return s.Store.Resume(ctx, name)
}

func (s *wrongStore) appendReversed(ctx context.Context, tickets []*serializer.Ticket) error {
	reversed := slices.Clone(tickets)
	slices.Reverse(reversed)
	return s.Store.Append(ctx, reversed)
}

// appendAndRefuse publishes the tickets that it refuses.
func (s *wrongStore) appendAndRefuse(ctx context.Context, tickets []*serializer.Ticket) error {
	if ctx.Err() == nil {
		return s.Store.Append(ctx, tickets)
	}
	s.events.quiet.Store(true)
	defer s.events.quiet.Store(false)
	_ = s.Store.Append(context.Background(), tickets)
	return ctx.Err()
}

// refuseAndAppend issues the tickets that it has refused.
func (s *wrongStore) refuseAndAppend(ctx context.Context, tickets []*serializer.Ticket) error {
	if ctx.Err() != nil {
		s.later(func() { _ = s.Store.Append(context.Background(), tickets) })
	}
	return s.Store.Append(ctx, tickets)
}

// removeWithNext removes the next ticket, too.
func (s *wrongStore) removeWithNext(t *serializer.Ticket) {
	s.Store.Remove(t)
	s.Store.mu.Lock()
	var next *serializer.Ticket
	for _, other := range s.tickets {
		if other.Owner == t.Owner && other.Number > t.Number && (next == nil || other.Number < next.Number) {
			next = other
		}
	}
	s.Store.mu.Unlock()
	if next != nil {
		s.Store.Remove(next)
	}
}

func (s *wrongStore) evictAll(ctx context.Context, t *serializer.Ticket) error {
	return s.do(ctx, func(tx *Tx) {
		for number, r := range s.db.tickets {
			if r.Queue == t.Queue {
				tx.SetEvict(number)
			}
		}
	})
}

func (s *wrongStore) pauseShorter(ctx context.Context, name string, until time.Time) error {
	if until.Before(serializer.Forever) {
		until = until.Add(-time.Second)
	}
	return s.Store.Pause(ctx, name, until)
}

// pauseWithTimer ends the pause of a name by a timer that it does not stop.
func (s *wrongStore) pauseWithTimer(ctx context.Context, name string, until time.Time) error {
	if until.Before(serializer.Forever) {
		time.AfterFunc(time.Until(until)-time.Second, func() { _ = s.Store.Resume(context.Background(), name) })
	}
	return s.Store.Pause(ctx, name, until)
}

// wrongEvents reports what a correct store does, except for the functions that are
// replaced.
type wrongEvents struct {
	serializer.Events
	store    *wrongStore
	since    time.Time
	quiet    atomic.Bool              // own tickets are not reported
	change   func(*serializer.Ticket) // falsifies the tickets of others
	joined   func(*serializer.Ticket) bool
	appeared func(*serializer.Ticket)
	vanished func(*serializer.Ticket)
	paused   func(name string, until time.Time)
}

func (e *wrongEvents) Joined(t *serializer.Ticket) bool {
	return e.quiet.Load() || e.joined(t)
}

func (e *wrongEvents) Appeared(t *serializer.Ticket) {
	if e.change != nil {
		e.change(t)
	}
	e.appeared(t)
}

func (e *wrongEvents) Vanished(t *serializer.Ticket)       { e.vanished(t) }
func (e *wrongEvents) Paused(name string, until time.Time) { e.paused(name, until) }

func (e *wrongEvents) joinAndAppear(t *serializer.Ticket) bool {
	wanted := e.Events.Joined(t)
	e.Events.Appeared(t)
	return wanted
}

func (e *wrongEvents) appearLate(t *serializer.Ticket) {
	e.store.later(func() { e.Events.Appeared(t) })
}

// appearOncePublished sees no ticket while its owner appends it.
func (e *wrongEvents) appearOncePublished(t *serializer.Ticket) {
	if e.store.other.appending.Load() {
		e.appearLate(t)
	} else {
		e.Events.Appeared(t)
	}
}

func (e *wrongEvents) appearTwice(t *serializer.Ticket) {
	e.Events.Appeared(t)
	e.Events.Appeared(t)
}

func (e *wrongEvents) appearAndVanish(t *serializer.Ticket) {
	e.Events.Appeared(t)
	e.Events.Vanished(t)
}

func (e *wrongEvents) pauseLate(name string, until time.Time) {
	e.store.later(func() { e.Events.Paused(name, until) })
}

func (e *wrongEvents) pauseOwn(name string, until time.Time) {
	if e.store.pausing.Load() {
		e.Events.Paused(name, until)
	}
}

func (e *wrongEvents) pauseForGood(name string, until time.Time) {
	if !until.IsZero() || e.store.pausing.Load() {
		e.Events.Paused(name, until)
	}
}

func (e *wrongEvents) pauseLonger(name string, until time.Time) {
	if !until.IsZero() && until.Before(serializer.Forever) {
		until = until.Add(time.Second)
	}
	e.Events.Paused(name, until)
}

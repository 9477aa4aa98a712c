package serializer_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/memory"
)

// tokenOf returns the token of the i-th ticket of the queue, as it is listed.
func tokenOf(t testing.TB, e *serializer.Engine, i int) uint64 {
	t.Helper()
	queues, err := e.Queues(t.Context())
	if err != nil || len(queues) != 1 || len(queues[0].Tickets) <= i {
		t.Fatalf("the list is %+v, error %v", queues, err)
	}
	token, err := strconv.ParseUint(queues[0].Tickets[i].Token, 10, 64)
	must(t, err)
	return token
}

// requester is a requester that returns its name.
type requester string

func (r requester) Request() serializer.Request { return serializer.Request{Path: string(r)} }

// The list has all queues by name, and their tickets in order, with what this process knows
// of them.
func TestList(t *testing.T) {
	engines(t, func(t *testing.T, e *serializer.Engine) {
		begun := time.Now().Add(-time.Second)
		holder, waiting := ruled(serializer.Rule{Limit: 1}), ruled(serializer.Rule{Limit: 1})
		holder.Requester, waiting.Requester = requester("holder"), requester("waiter")
		turn := enter(t, e, holder)
		w := join(t, e, waiting)
		for _, name := range []string{"c", "a", "b_"} {
			defer enter(t, e, serializer.Arrival{Queue: name, Client: "@"}).Leave() // as by a Unix socket
		}
		queues, err := e.Queues(t.Context())
		if err != nil || len(queues) != 4 {
			t.Fatalf("the list is %+v, error %v", queues, err)
		}
		for i, name := range []string{"a", "a_", "b_", "c"} {
			if queues[i].Prefix != name || queues[i].Path != e.Path() || queues[i].PausedUntil != nil {
				t.Errorf("queue %d is %+v; expected %q", i, queues[i], name)
			}
		}
		if client := queues[0].Tickets[0].Client; client != "" {
			t.Errorf("the client is %q; expected none", client)
		}
		q := queues[1]
		if q.Inside != 1 || q.Waiting != 1 || q.Limit != 1 || len(q.Tickets) != 2 {
			t.Fatalf("%+v; expected one inside, one waiting, limit 1", q)
		}
		inside, behind := q.Tickets[0], q.Tickets[1]
		if inside.State != serializer.StateInside || behind.State != serializer.StateWaiting ||
			inside.Requester != requester("holder") || behind.Requester != requester("waiter") ||
			inside.Token != strconv.FormatUint(turn.Token(), 10) || inside.Client != holder.Client ||
			inside.Owner == "" || inside.Alive == nil || !*inside.Alive {
			t.Errorf("the tickets are %+v", q.Tickets)
		}
		if inside.Arrived.Before(begun) || inside.Entered.Before(begun) || inside.Entered.After(time.Now().Add(time.Second)) ||
			!inside.Since.Equal(inside.Entered) || !behind.Entered.IsZero() || !behind.Since.Equal(behind.Arrived) {
			t.Errorf("the times are %+v", q.Tickets)
		}
		turn.Leave()
		w.enters(t).Leave()
	})
}

// Bug: with numbers ahead of the clock, a ticket was listed to have entered before it arrived.
func TestEnteredAfterArrival(t *testing.T) {
	ahead := func() time.Time { return time.Now().Add(time.Minute) }
	e := serializer.New(memory.New(memory.Options{Clock: ahead}), serializer.Options{})
	t.Cleanup(func() { _ = e.Close() })
	defer enter(t, e, serializer.Arrival{Queue: "a_"}).Leave()
	queues, err := e.Queues(t.Context())
	must(t, err)
	if inside := queues[0].Tickets[0]; inside.Entered.Before(inside.Arrived) {
		t.Errorf("the times are %+v", inside)
	}
}

// Bug: two lists of one holder differed in the nanoseconds of its entry, so that the command
// printed another text than the admin API.
func TestListsAgree(t *testing.T) {
	e := serializer.New(memory.New(memory.Options{}), serializer.Options{})
	t.Cleanup(func() { _ = e.Close() })
	all := func(string) bool { return true }
	enter(t, e, serializer.Arrival{Queue: "a_"})
	first, differ := e.Known(all)[0].Tickets[0], 0
	for range 100 {
		if ticket := e.Known(all)[0].Tickets[0]; !ticket.Entered.Equal(first.Entered) {
			differ++
		}
	}
	if differ > 60 { // at the edge of a millisecond, some do
		t.Errorf("%d of 100 lists have another time than %+v", differ, first)
	}
}

// A list or an eviction returns when its context is done, even if the store does not.
//
// Bug: Queues of the lock-file engine ignored its context, and waited for a stopped process.
func TestCallsEndWithTheirContext(t *testing.T) {
	s := &slow{script: newScript(), proceed: make(chan struct{})}
	e := serializer.New(s, serializer.Options{})
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(time.Millisecond, func() { cancel(errHungUp) })
	if _, err := e.Queues(ctx); !errors.Is(err, errHungUp) {
		t.Errorf("listing: %v; expected %v", err, errHungUp)
	}
	if err := e.Evict(ctx, "a_", 1); !errors.Is(err, errHungUp) {
		t.Errorf("evicting: %v; expected %v", err, errHungUp)
	}
	_ = e.Close() // waits for a second
	select {
	case <-s.closed:
		t.Error("the store is closed while it is called")
	default:
	}
	close(s.proceed)
	<-s.closed
}

// slow is a store whose Sync waits for the test.
type slow struct {
	*script
	proceed chan struct{}
}

func (s *slow) Sync(context.Context) error { <-s.proceed; return nil }

// Count has the tickets of this process alone.
func TestCount(t *testing.T) {
	s := newScript()
	e := serializer.New(s, serializer.Options{})
	defer e.Close()
	expect := func(inside, waiting int) {
		t.Helper()
		if i, w := e.Count("a_"); i != inside || w != waiting {
			t.Errorf("%d inside, %d waiting; expected %d and %d", i, w, inside, waiting)
		}
	}
	expect(0, 0)
	remote := s.appear("a_", 1, serializer.Rule{})
	expect(0, 0)
	w, next := join(t, e, arrival()), join(t, e, arrival())
	expect(0, 2)
	s.Vanished(remote)
	turn := w.enters(t)
	expect(1, 1)
	turn.Leave()
	next.enters(t).Leave()
	expect(0, 0)
}

func TestLimitOfQueue(t *testing.T) {
	reader := serializer.Rule{Shared: true}
	for _, c := range []struct {
		name  string
		rules []serializer.Rule
		limit int
	}{
		{"alone", []serializer.Rule{{}}, 1},
		{"rules that differ", []serializer.Rule{{Limit: 1}, {Limit: 3}, {Limit: 2}}, 3},
		{"a reader behind a writer", []serializer.Rule{{Limit: 1}, reader}, 0},
		{"a writer behind a reader", []serializer.Rule{reader, {Limit: 1}}, 0},
		{"a few readers", []serializer.Rule{{Limit: 1}, {Shared: true, Limit: 4}}, 4},
	} {
		e := newMemory()
		for _, rule := range c.rules {
			a := arrival()
			a.Rule = rule
			e.Join(a, func(serializer.Turn, error) {})
		}
		if q := e.Known(func(string) bool { return true })[0]; q.Limit != c.limit {
			t.Errorf("%s: limit %d; expected %d", c.name, q.Limit, c.limit)
		}
	}
}

// The ages of holds are those of the tickets inside, the longest first, and not of waiters.
func TestHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newMemory()
		defer e.Close()
		a := serializer.Arrival{Queue: "holds_", Rule: serializer.Rule{Limit: 2}}
		first := enter(t, e, a)
		time.Sleep(time.Minute)
		second := enter(t, e, a)
		time.Sleep(time.Second)
		e.Join(a, func(turn serializer.Turn, _ error) { turn.Leave() })
		synctest.Wait()
		if ages := e.Holds(a.Queue); !slices.Equal(ages, []time.Duration{time.Minute + time.Second, time.Second}) {
			t.Errorf("the ages are %v; expected 1m1s and 1s", ages)
		}
		if ages := e.Holds("other_"); len(ages) > 0 {
			t.Errorf("the ages in an empty queue are %v", ages)
		}
		first.Leave()
		second.Leave()
	})
}

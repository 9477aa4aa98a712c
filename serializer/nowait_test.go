package serializer_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// An arrival that does not wait enters where it can enter at once, and nowhere else. A
// refusal leaves no ticket.
func TestNoWait(t *testing.T) {
	try := serializer.Arrival{Queue: "a_", NoWait: true}
	reader := serializer.Arrival{Queue: "a_", NoWait: true, Rule: serializer.Rule{Shared: true}}
	engines(t, func(t *testing.T, e *serializer.Engine) {
		refused := func(a serializer.Arrival) {
			t.Helper()
			_, err := e.Enter(t.Context(), a)
			wantRefusal(t, err, serializer.ReasonTimeout, serializer.ErrTimeout)
			start(e, a).refused(t, serializer.ReasonTimeout, serializer.ErrNotFree)
		}
		for range 1000 {
			enter(t, e, try).Leave()
		}
		first, second := enter(t, e, reader), enter(t, e, reader)
		refused(try)
		waiting := join(t, e, arrival())
		refused(reader)
		first.Leave()
		second.Leave()
		waiting.enters(t).Leave()
		if err := e.Pause(t.Context(), "a_", time.Time{}); err != nil {
			t.Fatal(err)
		}
		refused(try)
		if inside, waiting := e.Count("a_"); inside+waiting > 0 {
			t.Errorf("%d inside, %d waiting", inside, waiting)
		}
	})
}

// While a store numbers no tickets, those who do not wait are refused, unless the store does
// so for holders only.
func TestNoWaitWhileNoneAreNumbered(t *testing.T) {
	s := newScript()
	e := serializer.New(s, serializer.Options{})
	defer e.Close()
	outer := enter(t, e, serializer.Arrival{Queue: "outer_"})
	s.append = func(_ context.Context, tickets []*serializer.Ticket) error {
		if tickets[0].Holder() == nil {
			return serializer.ErrNotNow
		}
		s.join(tickets...)
		return nil
	}
	_, err := e.Enter(t.Context(), serializer.Arrival{Queue: "a_", NoWait: true})
	wantRefusal(t, err, serializer.ReasonTimeout, serializer.ErrTimeout)
	enter(t, e, serializer.Arrival{Queue: "a_", NoWait: true, Holds: []serializer.Turn{outer}}).Leave()
	outer.Leave()
}

// A wait that is over before it begins takes no ticket.
//
// Bug: a negative timeout waited for ever, and a context that was done got a turn in memory.
func TestOverBeforeArrival(t *testing.T) {
	gone, cancel := context.WithCancelCause(t.Context())
	cancel(errHungUp)
	for _, c := range []struct {
		name   string
		ctx    context.Context
		a      serializer.Arrival
		reason serializer.Reason
		cause  error
	}{
		{"timeout that has passed", t.Context(), arrivalFor(-1), serializer.ReasonTimeout, serializer.ErrTimeout},
		{"context that is done", gone, arrival(), serializer.ReasonGone, errHungUp},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript()
			e := serializer.New(s, serializer.Options{})
			defer e.Close()
			_, err := e.Enter(c.ctx, c.a)
			wantRefusal(t, err, c.reason, c.cause)
			if c.a.Timeout < 0 {
				start(e, c.a).refused(t, c.reason, c.cause)
			}
			if s.last > 0 {
				t.Errorf("it took ticket %d", s.last)
			}
		})
	}
}

// A name that lock files cannot have is refused for each store, and is no failure of one.
func TestBadQueueName(t *testing.T) {
	engines(t, func(t *testing.T, e *serializer.Engine) {
		for _, name := range []string{"job*", "a/b", ".orderly-x", "p00001", "ü", string(make([]byte, 151))} {
			_, err := e.Enter(t.Context(), serializer.Arrival{Queue: name})
			if _, refused := errors.AsType[*serializer.Refused](err); refused || !errors.Is(err, serializer.ErrQueueName) {
				t.Errorf("queue %q: %v", name, err)
			}
			enter(t, e, serializer.Arrival{Queue: serializer.QueueName(name)}).Leave()
		}
		for _, name := range []string{"a/b", "a/*", "ü*", "p00001"} {
			if err := e.Pause(t.Context(), name, time.Time{}); !errors.Is(err, serializer.ErrQueueName) {
				t.Errorf("pausing %q: %v", name, err)
			}
		}
		if err := e.Pause(t.Context(), "p00001*", time.Time{}); err != nil {
			t.Error(err)
		}
	})
}

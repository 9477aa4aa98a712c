package serializer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// Leave does nothing after the first call, also if another ticket is inside by then.
func TestLeaveTwice(t *testing.T) {
	engines(t, func(t *testing.T, e *serializer.Engine) {
		first := enter(t, e, arrival())
		second, third := join(t, e, arrival()), join(t, e, arrival())
		first.Leave()
		turn := second.enters(t)
		first.Leave()
		third.waits(t, e)
		turn.Leave()
		last := third.enters(t)
		turn.Leave()
		fourth := join(t, e, arrival())
		fourth.waits(t, e)
		last.Leave()
		fourth.enters(t).Leave()
	})
}

// Giving up ends a wait with the cause. Giving up again, or after the wait has ended, does
// nothing; the answer comes once.
func TestGiveUp(t *testing.T) {
	engines(t, func(t *testing.T, e *serializer.Engine) {
		holder := start(e, arrival())
		turn := holder.enters(t)
		first, second, third := join(t, e, arrival()), join(t, e, arrival()), join(t, e, arrival())
		second.GiveUp(errHungUp)
		second.GiveUp(errors.New("too late"))
		second.refused(t, serializer.ReasonGone, errHungUp)
		fourth := join(t, e, arrival())
		fourth.GiveUp(nil) // bug: it was inside
		fourth.refused(t, serializer.ReasonGone, context.Canceled)
		holder.GiveUp(errHungUp)
		first.waits(t, e)
		turn.Leave()
		turn = first.enters(t)
		first.GiveUp(errHungUp)
		third.waits(t, e)
		turn.Leave()
		third.enters(t).Leave()
		if n := len(holder.result) + len(first.result) + len(second.result) + len(third.result); n > 0 {
			t.Errorf("%d more answers", n)
		}
	})
}

// When a writer is superseded, the readers behind it enter beside those inside.
func TestDropWriter(t *testing.T) {
	engines(t, func(t *testing.T, e *serializer.Engine) {
		exclusive := arrival()
		exclusive.MaxWaiting, exclusive.DropOldest = 1, true
		reader := exclusive
		reader.Rule.Shared = true
		first, writer := enter(t, e, reader), join(t, e, exclusive)
		second := start(e, reader) // supersedes the writer
		writer.refused(t, serializer.ReasonSuperseded, serializer.ErrSuperseded)
		second.enters(t).Leave()
		first.Leave()
	})
}

// An evicted waiter is refused. An evicted holder gets one call of Revoke, and keeps its
// turn until it leaves.
func TestEvict(t *testing.T) {
	engines(t, func(t *testing.T, e *serializer.Engine) {
		a, causes := revoked(arrival())
		holder := enter(t, e, a)
		b, none := revoked(arrival())
		waiting := join(t, e, b)
		token := tokenOf(t, e, 1)
		for _, c := range []struct {
			queue string
			token uint64
			want  error
		}{
			{"a_", token, nil}, {"a_", holder.Token(), nil}, {"a_", holder.Token(), nil},
			{"a_", token, serializer.ErrNoTicket}, {"a_", 1, serializer.ErrNoTicket}, {"b_", holder.Token(), serializer.ErrNoTicket},
		} {
			if err := e.Evict(t.Context(), c.queue, c.token); !errors.Is(err, c.want) {
				t.Errorf("evicting %d of %s: %v; expected %v", c.token, c.queue, err, c.want)
			}
		}
		if refused := waiting.refused(t, serializer.ReasonEvicted, serializer.ErrEvicted); refused.Token != token {
			t.Errorf("refused with token %d; expected %d", refused.Token, token)
		}
		wantRevoked(t, causes, serializer.ErrEvicted)
		next := join(t, e, arrival())
		next.waits(t, e)
		holder.Leave()
		next.enters(t).Leave()
		if len(causes)+len(none) > 0 {
			t.Error("Revoke was called again, or for a waiter")
		}
	})
}

// Closing refuses all waiters and arrivals, and notifies the holders, who stay.
func TestClose(t *testing.T) {
	engines(t, func(t *testing.T, e *serializer.Engine) {
		a, causes := revoked(arrival())
		holder := enter(t, e, a)
		waiting := join(t, e, arrival())
		closed := make(chan error, 2)
		go func() { closed <- e.Close() }()
		waiting.refused(t, serializer.ReasonClosed, serializer.ErrClosed)
		wantRevoked(t, causes, serializer.ErrClosed)
		_, err := e.Enter(t.Context(), arrival())
		wantRefusal(t, err, serializer.ReasonClosed, serializer.ErrClosed)
		start(e, arrival()).refused(t, serializer.ReasonClosed, serializer.ErrClosed)
		holder.Leave()
		must(t, <-closed)
		ctx := t.Context()
		for _, call := range []func() error{
			func() error { _, err := e.Queues(ctx); return err },
			func() error { return e.Evict(ctx, "a_", holder.Token()) },
			func() error { return e.Pause(ctx, "a_", time.Time{}) },
			func() error { return e.Resume(ctx, "a_") },
		} {
			if err := call(); !errors.Is(err, serializer.ErrClosed) {
				t.Errorf("a closed engine returns %v", err)
			}
		}
	})
}

// A closing engine refuses its waiters one after the other. None of them enters on the way
// because one before it has gone: the reader here could as soon as no writer is before it.
//
// Bug: the etcd engine and the lock-file engine let such readers in while they closed.
func TestCloseBeforeReaders(t *testing.T) {
	engines(t, func(t *testing.T, e *serializer.Engine) {
		reader := serializer.Rule{Shared: true}
		var holders []serializer.Turn
		var waiters []*waiter
		for i := range 8 { // an engine may go through them in any order
			for n, rule := range []serializer.Rule{reader, {}, reader, reader} {
				a := ruled(rule)
				a.Queue = fmt.Sprintf("a%d_", i)
				if n == 0 {
					holders = append(holders, enter(t, e, a))
				} else {
					waiters = append(waiters, join(t, e, a))
				}
			}
		}
		go func() { _ = e.Close() }()
		for _, w := range waiters {
			w.refused(t, serializer.ReasonClosed, serializer.ErrClosed)
		}
		for _, turn := range holders {
			turn.Leave()
		}
	})
}

// The store is closed when the last holder has left, not before. Close does not wait for
// that for long, and its error is only logged.
func TestStoreIsClosedLast(t *testing.T) {
	s := newScript()
	e := serializer.New(s, serializer.Options{})
	holder := enter(t, e, arrival())
	if err := e.Close(); err != nil { // waits for a second
		t.Error(err)
	}
	select {
	case <-s.closed:
		t.Fatal("the store is closed, though a holder has not left")
	default:
	}
	holder.Leave()
	<-s.closed
	if !s.wasRemoved(holder.Token()) {
		t.Error("the last ticket was not removed")
	}
}

// A store that blocks in Append does not keep callers beyond their timeouts. Closing ends
// it: all arrivals are refused because the engine is closed, whatever the store says.
func TestAppendBlocks(t *testing.T) {
	s := newScript()
	called := make(chan struct{}, 1)
	s.append = func(ctx context.Context, _ []*serializer.Ticket) error {
		called <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	e := serializer.New(s, serializer.Options{})
	first := start(e, arrival())
	<-called
	second := start(e, arrival())
	_, err := e.Enter(t.Context(), arrivalFor(time.Millisecond))
	if refused := wantRefusal(t, err, serializer.ReasonTimeout, serializer.ErrTimeout); refused.Token != 0 {
		t.Errorf("refused with token %d; expected none", refused.Token)
	}
	must(t, e.Close())
	first.refused(t, serializer.ReasonClosed, serializer.ErrClosed)
	second.refused(t, serializer.ReasonClosed, serializer.ErrClosed)
	<-s.closed
}

// While the store appends, a holder whose successor is local leaves the removal of its
// ticket to others. No other process waits for that. Bug: one did, of which nobody knew yet,
// and which may be inside together with the successor.
func TestRemovalIsPutOff(t *testing.T) {
	for _, test := range []struct{ remote, shared, appended bool }{{}, {appended: true}, {shared: true}, {remote: true}} {
		s := newScript()
		e := serializer.New(s, serializer.Options{})
		defer e.Close()
		holder, next := enter(t, e, arrival()), join(t, e, ruled(serializer.Rule{Shared: test.shared}))
		if test.remote {
			s.appear("a_", 100, serializer.Rule{})
		}
		called, proceed := make(chan struct{}), make(chan struct{})
		s.append = func(context.Context, []*serializer.Ticket) error {
			close(called)
			<-proceed
			return errClosing
		}
		start(e, arrival())
		<-called
		holder.Leave()
		turn := next.enters(t)
		if s.wasRemoved(1) != (test.remote || test.shared) {
			t.Errorf("%+v: the first ticket is removed too early or too late", test)
		}
		if test.appended {
			close(proceed)
			wait.Until(t, "the first ticket is removed", func() bool { return s.wasRemoved(1) })
		}
		turn.Leave()
		if !s.wasRemoved(1) || !s.wasRemoved(2) {
			t.Errorf("%+v: removed are %v, want both tickets", test, s.removed)
		}
		if !test.appended {
			close(proceed)
		}
	}
}

// Arrivals that the store cannot number at the moment keep their order, and are tried again.
// Those of callers that are inside are tried apart: the others may wait for them.
func TestAppendNotNow(t *testing.T) {
	s := newScript()
	e := serializer.New(s, serializer.Options{})
	outer, err := e.Enter(t.Context(), arrival())
	must(t, err)
	open := make(chan struct{})
	s.append = func(_ context.Context, tickets []*serializer.Ticket) error {
		for _, ticket := range tickets {
			select {
			case <-open:
			default:
				if ticket.Holder() == nil {
					return serializer.ErrNotNow
				}
			}
		}
		s.join(tickets...)
		return nil
	}
	entered := make(chan string, 3)
	wait := func(queue string, holds ...serializer.Turn) serializer.Wait {
		a := arrival()
		a.Queue, a.Holds = queue, holds
		return e.Join(a, func(turn serializer.Turn, err error) {
			if err == nil {
				turn.Leave()
			}
			entered <- queue
		})
	}
	wait("first_")
	gone := wait("gone_")
	wait("nested_", outer)
	if first := <-entered; first != "nested_" {
		t.Errorf("%s entered", first)
	}
	gone.GiveUp(errHungUp)
	if next := <-entered; next != "gone_" {
		t.Errorf("%s entered", next)
	}
	close(open)
	if last := <-entered; last != "first_" {
		t.Errorf("%s entered", last)
	}
	outer.Leave()
	_ = e.Close()
}

// What a store returns refuses those of a batch that have not joined. The next ones enter.
func TestAppendFails(t *testing.T) {
	s := newScript()
	failed := errors.New("no space")
	s.append = func(_ context.Context, tickets []*serializer.Ticket) error {
		s.join(tickets[0])
		return failed
	}
	e := serializer.New(s, serializer.Options{})
	defer e.Close()
	holder := enter(t, e, arrival()) // it had joined
	s.append = func(context.Context, []*serializer.Ticket) error { return failed }
	_, err := e.Enter(t.Context(), arrival())
	wantRefusal(t, err, serializer.ReasonStorage, failed)
	wantRefusal(t, err, serializer.ReasonStorage, serializer.ErrStorage)
	s.append = nil
	next := join(t, e, arrival())
	holder.Leave()
	next.enters(t).Leave()
}

// A ticket that somebody else has removed is over for a waiter. A holder is told, and the
// next one waits until it leaves.
func TestRemovedBySomebodyElse(t *testing.T) {
	s := newScript()
	var tickets []*serializer.Ticket
	s.append = func(_ context.Context, batch []*serializer.Ticket) error {
		tickets = append(tickets, batch...)
		s.join(batch...)
		return nil
	}
	e := serializer.New(s, serializer.Options{})
	defer e.Close()
	a, causes := revoked(arrival())
	holder := enter(t, e, a)
	waiting, next := join(t, e, arrival()), join(t, e, arrival())
	s.Removed(tickets[1])
	s.Removed(tickets[0])
	s.Removed(tickets[0])
	waiting.refused(t, serializer.ReasonEvicted, serializer.ErrEvicted)
	wantRevoked(t, causes, serializer.ErrLost)
	next.waits(t, e)
	holder.Leave()
	next.enters(t).Leave()
	if len(causes) > 0 {
		t.Error("Revoke was called twice")
	}
}

// During a pause, others must be told who is inside, and the store knows who is inside
// elsewhere.
func TestInsideDuringPause(t *testing.T) {
	s := newScript()
	e := serializer.New(s, serializer.Options{})
	defer e.Close()
	remote := s.appear("a_", 1, serializer.Rule{Limit: 2})
	holder := enter(t, e, ruled(serializer.Rule{Limit: 2}))
	waiting := join(t, e, ruled(serializer.Rule{Limit: 2}))
	pause(t, e, "a_")
	s.mu.Lock()
	if len(s.told) != 1 || s.told[0] != holder.Token() {
		t.Errorf("told to be inside are %v; expected %d", s.told, holder.Token())
	}
	s.mu.Unlock()
	holder.Leave()
	s.Vanished(remote)
	late := s.appear("a_", 100, serializer.Rule{})
	waiting.waits(t, e)
	resume(t, e, "a_")
	waiting.enters(t).Leave()
	pause(t, e, "a_")
	for _, inside := range []bool{false, true} {
		s.mu.Lock()
		s.inside[100] = inside
		s.mu.Unlock()
		queues, err := e.Queues(t.Context())
		if err != nil || len(queues) != 1 || queues[0].Inside != map[bool]int{true: 1}[inside] {
			t.Errorf("inside %t: the list is %+v, error %v", inside, queues, err)
		}
	}
	s.Vanished(late)
}

// When the store has lost everything, waiters are refused and holders are told. A holder
// that has not left yet stays ahead of all that follow, whatever their numbers. Others are
// forgotten.
func TestLost(t *testing.T) {
	s := newScript()
	e := serializer.New(s, serializer.Options{})
	defer e.Close()
	a, causes := revoked(ruled(serializer.Rule{Limit: 2}))
	s.appear("b_", 1, serializer.Rule{})
	s.mu.Lock()
	s.last = 1000
	s.mu.Unlock()
	first, second := enter(t, e, a), enter(t, e, a)
	waiting := join(t, e, a)
	remote := s.appear("a_", 2000, serializer.Rule{})
	cause := fmt.Errorf("%w: its lease has ended", serializer.ErrLost)
	s.Lost(cause)
	waiting.refused(t, serializer.ReasonLost, cause)
	wantRevoked(t, causes, cause)
	wantRevoked(t, causes, cause)
	s.Vanished(remote) // the store need not know that it is forgotten

	s.mu.Lock()
	s.last = 1 // another history
	s.mu.Unlock()
	other := s.appear("a_", 2, serializer.Rule{})
	newcomer := join(t, e, arrival())
	queues, err := e.Queues(t.Context())
	if err != nil || len(queues) != 1 || queues[0].Inside != 2 || queues[0].Waiting != 2 {
		t.Errorf("after the loss, the list is %+v, error %v", queues, err)
	}
	s.Lost(cause) // of the new claim
	newcomer.refused(t, serializer.ReasonLost, cause)
	s.Vanished(other)
	newcomer = join(t, e, arrival())
	first.Leave()
	newcomer.waits(t, e)
	second.Leave()
	newcomer.enters(t).Leave()
	if len(causes) > 0 {
		t.Error("Revoke was called again")
	}
}

// leased is a store whose claim on a ticket stands as long as a test says.
type leased struct {
	*script
	stands func(*serializer.Ticket) bool
}

func (l *leased) Stands(t *serializer.Ticket) bool { return l.stands(t) }

// A caller does not enter if the lease has ended unnoticed since its turn came. The next
// one has the turn then.
func TestLeaseThatDoesNotStand(t *testing.T) {
	s := &leased{script: newScript()}
	s.stands = func(t *serializer.Ticket) bool { return t.Number != 2 }
	e := serializer.New(s, serializer.Options{})
	defer e.Close()
	holder := enter(t, e, arrival())
	second, third := join(t, e, arrival()), join(t, e, arrival())
	holder.Leave()
	second.refused(t, serializer.ReasonLost, serializer.ErrLost)
	third.enters(t).Leave()
	wait.Until(t, "the lost ticket is removed", func() bool { return s.wasRemoved(2) })
}

// A ticket whose caller has given up is not wanted any more, and the store takes it out.
//
// Bug: the store was asked about a ticket that it was still numbering, for a caller that
// had given up. Until then, the ticket belongs to the store.
func TestLeaseOfTicketThatNeverJoined(t *testing.T) {
	s := &leased{script: newScript()}
	s.stands = func(asked *serializer.Ticket) bool {
		t.Errorf("asked about ticket %d, whose turn never came", asked.Number)
		return true
	}
	numbering, numbered, wanted := make(chan struct{}), make(chan struct{}), make(chan bool)
	s.append = func(_ context.Context, tickets []*serializer.Ticket) error {
		close(numbering)
		<-numbered
		tickets[0].Number = 1
		wanted <- s.Joined(tickets[0])
		return nil
	}
	e := serializer.New(s, serializer.Options{})
	w := start(e, arrival())
	<-numbering
	w.GiveUp(errHungUp)
	w.refused(t, serializer.ReasonGone, errHungUp)
	close(numbered)
	if <-wanted {
		t.Error("the engine wants a ticket whose caller has given up")
	}
	_ = e.Close()
	if len(s.removed) > 0 {
		t.Errorf("the engine removes %v, which have not joined", s.removed)
	}
}

// calling is a log that calls something with each entry, as one does that reports queues.
type calling func()

func (c calling) Write(text []byte) (int, error) { c(); return len(text), nil }

// Bug: a log handler that called the engine hung, because the engine logged under its lock.
func TestLogHandlerCallsTheEngine(t *testing.T) {
	var e *serializer.Engine
	s, logged := newScript(), make(chan struct{}, 8)
	e = serializer.New(s, serializer.Options{Log: slog.New(slog.NewTextHandler(calling(func() {
		e.Count("a_")
		_, _ = e.Queues(t.Context())
		logged <- struct{}{}
	}), nil))})
	for _, event := range []func(){
		func() { _ = e.Pause(t.Context(), "a_", time.Time{}) },
		func() { _ = e.Resume(t.Context(), "a_") },
		func() { s.Lost(serializer.ErrLost) },
		func() { _ = e.Close() },
	} {
		event()
		<-logged
	}
}

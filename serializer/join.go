package serializer

import (
	"context"
	"sync/atomic"
)

// Joiner is an [Engine] in which an arrival can wait without a goroutine. It is
// optional: if an engine is not a Joiner, [Join] waits in a goroutine.
type Joiner interface {
	// Join takes a ticket, as [Engine.Enter] does, and returns at once. When the wait
	// has ended, done is called once, in its own goroutine, with what Enter would have
	// returned. That may be before Join has returned.
	Join(a Arrival, done func(Turn, error)) Wait
}

// Wait is the wait of an arrival that has joined a queue.
type Wait interface {
	// GiveUp ends the wait, like a context that is cancelled with that cause. It does
	// not block, and does nothing if the wait has already ended.
	GiveUp(cause error)
}

// Join lets an arrival wait for its turn in an engine, without a goroutine if the
// engine is a [Joiner]. done is called as described at [Joiner.Join].
func Join(e Engine, a Arrival, done func(Turn, error)) Wait {
	if joiner, ok := e.(Joiner); ok {
		return joiner.Join(a, done)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() {
		turn, err := e.Enter(ctx, a)
		cancel(nil)
		done(turn, err)
	}()
	return enterWait(cancel)
}

// enterWait is the wait of a goroutine in Enter.
type enterWait context.CancelCauseFunc

// GiveUp implements [Wait].
func (w enterWait) GiveUp(cause error) { w(cause) }

// joinedWait is the wait of a ticket without a goroutine.
type joinedWait struct {
	ticket   *ticket
	timeouts *timeouts
	done     func(Turn, error)
	ended    atomic.Bool
}

// joinQueue makes an arrival join its queue.
func joinQueue(engine ticketEngine, timeouts *timeouts, a Arrival, done func(Turn, error)) Wait {
	t := newTicket(engine, &a)
	w := &joinedWait{ticket: t, timeouts: timeouts, done: done}
	t.joined = w
	if err := engine.arrive(t); err != nil {
		w.ended.Store(true)
		go done(nil, t.refused(err))
		return w
	}
	if a.Joined != nil {
		a.Joined()
	}
	if a.Timeout > 0 {
		timeouts.add(t.waiter, a.Timeout)
		if w.ended.Load() { // perhaps before the timeout was added
			timeouts.remove(t.waiter)
		}
	}
	return w
}

// GiveUp implements [Wait].
func (w *joinedWait) GiveUp(cause error) { go w.end(cause) }

// end ends the wait, with the turn or with a refusal. Only the first call has an effect.
func (w *joinedWait) end(err error) {
	if w.ended.Swap(true) {
		return
	}
	w.timeouts.remove(w.ticket.waiter)
	t := w.ticket
	if err != nil && !t.engine.settle(t, err) {
		w.done(nil, t.refused(err))
		return
	}
	w.done(t, nil)
}

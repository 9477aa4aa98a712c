package serialize

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// localTurn is a request's way through its local queues, and then its turn.
type localTurn struct {
	serializer.Turn
	engine   *sharedEngine
	places   []localPlace
	one      [1]localPlace // the memory of places, for most requests
	wait     *engineWait   // nil if the engine's queue could be joined at once
	entered  bool
	departed bool
}

// localPlace is where a request stands in one local queue.
type localPlace struct {
	queue      *localQueue
	generation *generation
}

// arrive returns once a request may join the engine's queue behind all requests of any
// engine. One that is inside the queue would wait for itself.
func (v *visit) arrive(ctx context.Context, a *serializer.Arrival) error {
	if v.insideElsewhere() {
		return nil
	}
	return v.local.arrive(ctx, v.engine, a)
}

// arrive returns once the engine's queue may be joined, with what is left of the arrival.
func (t *localTurn) arrive(ctx context.Context, e *engineRef, a *serializer.Arrival) error {
	t.engine = e.sharedEngine
	if err := localQueues.arrive(t, e.directory.names, a); err != nil {
		return err
	}
	if t.wait == nil {
		return nil
	}
	return t.awaitEarlier(ctx, a)
}

// awaitEarlier waits until all requests have left that came with another engine.
func (t *localTurn) awaitEarlier(ctx context.Context, a *serializer.Arrival) error {
	if err := t.wait.await(ctx); err != nil {
		localQueues.leave(t)
		return t.wait.refused(err)
	}
	*a = t.remaining()
	return nil
}

// settle records how the engine has answered.
func (t *localTurn) settle(turn serializer.Turn, err error) (serializer.Turn, error) {
	if err != nil {
		localQueues.leave(t)
		return nil, err
	}
	t.Turn = turn
	localQueues.enter(t)
	return t, nil
}

// join asks for a turn without waiting for it, and without a goroutine if the engine needs
// none. t is the turn. done is called in a goroutine of its own when the wait has ended,
// with nil if it has come.
func (e *engineRef) join(t *localTurn, a serializer.Arrival, done func(error)) serializer.Wait {
	t.engine = e.sharedEngine
	if err := localQueues.arrive(t, e.directory.names, &a); err != nil {
		go done(err)
		return cancelWait(func(error) {})
	}
	settle := func(turn serializer.Turn, err error) {
		_, err = t.settle(turn, err)
		done(err)
	}
	if t.wait == nil {
		return serializer.Join(t.engine.Engine, a, settle)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() {
		if err := t.awaitEarlier(ctx, &a); err != nil {
			done(err)
			return
		}
		settle(t.engine.Engine.Enter(ctx, a))
	}()
	return cancelWait(cancel)
}

// cancelWait is a wait that is given up by cancelling a context.
type cancelWait context.CancelCauseFunc

// GiveUp implements [serializer.Wait].
func (w cancelWait) GiveUp(cause error) { w(cause) }

// insideElsewhere reports whether the request is inside this queue already, by
// another engine. Then it holds the turn among all requests of this process.
func (v *visit) insideElsewhere() bool {
	at := cmp.Or(v.engine, v.handler.engine).directory // one that is still to take its ticket has none yet
	for outer := v.next; outer != nil; outer = outer.next {
		if outer.turn != nil && !outer.ended.Load() && outer.queue == v.queue && outer.engine.directory.same(at) {
			return true
		}
	}
	return false
}

// Leave implements [serializer.Turn].
func (t *localTurn) Leave() {
	t.Turn.Leave()
	localQueues.leave(t)
}

// Position implements [serializer.Turn].
func (t *localTurn) Position() int {
	if t.wait == nil {
		return t.Turn.Position()
	}
	return max(t.wait.position, t.Turn.Position())
}

// remaining is the arrival for the engine after a wait here. It has no limit of
// waiters: a request that was accepted is not refused because the queue has grown
// since, unless a later one supersedes it.
func (t *localTurn) remaining() serializer.Arrival {
	a := t.wait.arrival
	if !a.DropOldest {
		a.MaxWaiting = 0
	}
	a.Joined = func() { localQueues.joined(t) }
	if a.Timeout > 0 {
		a.Timeout = max(a.Timeout-time.Since(t.wait.arrived), 1)
	}
	return a
}

// supersedeLocked refuses the first pending request of t's queues, of those that may
// be superseded. Those that have joined the engine's queue are left to the engine.
func (t *localTurn) supersedeLocked() {
	for _, p := range t.places {
		for _, g := range p.queue.generations {
			i := slices.IndexFunc(g.pending, func(o *localTurn) bool { return !o.wait.ended && o.wait.arrival.DropOldest })
			if i >= 0 {
				g.pending[i].wait.endLocked(serializer.ErrSuperseded)
				return
			}
		}
	}
}

// joinedLocked ends the request's time as pending, if it was.
func (t *localTurn) joinedLocked() {
	if t.wait == nil {
		return
	}
	for _, p := range t.places {
		if i := slices.Index(p.generation.pending, t); i >= 0 {
			p.generation.pending = slices.Delete(p.generation.pending, i, i+1)
		}
	}
	t.advanceLocked()
}

// advanceLocked lets the next pending request of each of t's queues go on.
func (t *localTurn) advanceLocked() {
	for _, p := range t.places {
		p.queue.advanceLocked()
	}
}

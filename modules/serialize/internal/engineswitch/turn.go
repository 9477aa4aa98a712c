package engineswitch

import (
	"context"
	"slices"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Turn is a request's way through its local queues, and then its turn.
type Turn struct {
	serializer.Turn
	engine   serializer.Engine
	entries  []localEntry
	one      [1]localEntry // the memory of entries, for most requests
	wait     *engineWait   // nil if the engine's queue could be joined at once
	entered  bool
	departed bool
}

// localEntry is where a request stands in one local queue.
type localEntry struct {
	queue      *localQueue
	generation *generation
}

// Arrive returns once the engine's queue may be joined, with what is left of the arrival.
// names are the names of the queue's directory.
func (t *Turn) Arrive(ctx context.Context, engine serializer.Engine, names []string, a *serializer.Arrival) error {
	t.engine = engine
	if err := localQueues.arrive(t, names, a); err != nil {
		return err
	}
	if t.wait == nil {
		return nil
	}
	return t.awaitEarlier(ctx, a)
}

// awaitEarlier waits until all requests have left that came with another engine.
func (t *Turn) awaitEarlier(ctx context.Context, a *serializer.Arrival) error {
	if err := t.wait.await(ctx); err != nil {
		localQueues.leave(t)
		return t.wait.refused(err)
	}
	*a = t.remaining()
	return nil
}

// Arrived reports whether the request has arrived in a queue here.
func (t *Turn) Arrived() bool { return t.engine != nil }

// Entered reports whether the request has got its turn.
func (t *Turn) Entered() bool { return t.entered }

// Settle records how the engine has answered.
func (t *Turn) Settle(turn serializer.Turn, err error) (serializer.Turn, error) {
	if err != nil {
		localQueues.leave(t)
		return nil, err
	}
	t.Turn = turn
	localQueues.enter(t)
	return t, nil
}

// Join asks for a turn without waiting for it, and without a goroutine if the engine needs
// none. from is asked for the turns of engine. done is called in a goroutine of its own
// when the wait has ended, with nil if the turn has come.
func (t *Turn) Join(engine, from serializer.Engine, names []string, a serializer.Arrival, done func(error)) serializer.Wait {
	t.engine = engine
	if err := localQueues.arrive(t, names, &a); err != nil {
		go done(err)
		return cancelWait(func(error) {})
	}
	settle := func(turn serializer.Turn, err error) {
		_, err = t.Settle(turn, err)
		done(err)
	}
	if t.wait == nil {
		return serializer.Join(from, a, settle)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() {
		if err := t.awaitEarlier(ctx, &a); err != nil {
			done(err)
			return
		}
		settle(from.Enter(ctx, a))
	}()
	return cancelWait(cancel)
}

// cancelWait is a wait that is given up by cancelling a context.
type cancelWait context.CancelCauseFunc

// GiveUp implements [serializer.Wait].
func (w cancelWait) GiveUp(cause error) { w(cause) }

// Leave implements [serializer.Turn].
func (t *Turn) Leave() {
	t.Turn.Leave()
	localQueues.leave(t)
}

// Position implements [serializer.Turn].
func (t *Turn) Position() int {
	if t.wait == nil {
		return t.Turn.Position()
	}
	return max(t.wait.position, t.Turn.Position())
}

// remaining is the arrival for the engine after a wait here. It has no limit of waiters.
// A request that was accepted is not refused because the queue has grown since, unless a
// later one supersedes it.
func (t *Turn) remaining() serializer.Arrival {
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
func (t *Turn) supersedeLocked() {
	for _, p := range t.entries {
		for _, g := range p.queue.generations {
			i := slices.IndexFunc(g.pending, func(o *Turn) bool { return !o.wait.ended && o.wait.arrival.DropOldest })
			if i >= 0 {
				g.pending[i].wait.endLocked(serializer.ErrSuperseded)
				return
			}
		}
	}
}

// joinedLocked ends the request's time as pending, if it was.
func (t *Turn) joinedLocked() {
	if t.wait == nil {
		return
	}
	for _, p := range t.entries {
		if i := slices.Index(p.generation.pending, t); i >= 0 {
			p.generation.pending = slices.Delete(p.generation.pending, i, i+1)
		}
	}
	t.advanceLocked()
}

// advanceLocked lets the next pending request of each of t's queues go on.
func (t *Turn) advanceLocked() {
	for _, p := range t.entries {
		p.queue.advanceLocked()
	}
}

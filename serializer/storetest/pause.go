package storetest

import (
	"context"
	"fmt"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// pause has a store pause a queue, and waits until all have reported it. The zero time means
// that the queue is resumed.
func (r *recorder) pause(name string, until time.Time) {
	r.Helper()
	r.locked(func() { r.ends[name] = until })
	if until.IsZero() {
		r.must("Resume", func(ctx context.Context) error { return r.store.Resume(ctx, name) })
	} else {
		r.must("Pause", func(ctx context.Context) error { return r.store.Pause(ctx, name, until) })
	}
	r.reported(name, until)
}

func (r *recorder) resume(name string) { r.pause(name, time.Time{}) }

// reported makes sure that a store has reported the end of a pause, and waits for the
// others.
func (r *recorder) reported(name string, until time.Time) {
	r.Helper()
	r.locked(func() {
		end := r.pauses[name]
		r.expect(end.Equal(until), "returned when it had reported %s as the end of the pause; expected %s", end, until)
	})
	for _, other := range r.recorders {
		r.until(fmt.Sprintf("store %d reports a pause until %s", other.index, until), func() bool { return other.pauses[name].Equal(until) })
	}
}

// A pause is reported by all stores with its exact end, before Pause returns in the own
// process. Another one of the same name replaces it. A name with a * is one of its own.
func storePause(g *group) {
	name, end := serializer.QueueName("a_"), time.Now().Add(time.Hour).Truncate(time.Microsecond).UTC()
	for _, r := range g.recorders {
		r.enter("a_")
	}
	for i, r := range g.recorders {
		other := g.recorders[(i+1)%len(g.recorders)]
		r.pause(name, serializer.Forever)
		other.pause(name, end)
		other.pause(name+"*", serializer.Forever)
		r.resume(name + "*")
		r.reported(name, end)
		r.resume(name)
		r.resume(name) // it is no error that there is no pause
		g.busy()       // all have reported that, too, before the next pause
	}
}

// A pause ends by itself in all processes, not before its time. One that was replaced does
// not end the other.
func storePauseEnds(g *group) {
	short, long := serializer.QueueName("a_"), serializer.QueueName("b_")
	for _, r := range g.recorders {
		r.enter("a_")
	}
	first, last := g.recorders[0], g.recorders[len(g.recorders)-1]
	soon := func() time.Time { return time.Now().Add(2 * time.Second).Truncate(time.Microsecond).UTC() }
	last.pause(long, soon())
	last.pause(long, serializer.Forever)
	first.pause(short, soon())
	for _, r := range g.recorders {
		g.until("the pause has ended", func() bool { return r.pauses[short].IsZero() })
	}
	g.busy()
	last.reported(long, serializer.Forever)
	last.resume(long)
}

// In a paused queue, other processes learn which tickets are inside, and that the rest is not.
func storeInside(g *group) {
	for i, r := range g.recorders {
		other := g.recorders[(i+1)%len(g.recorders)]
		holder, waiter := r.enter("a_"), r.enter("a_")
		r.store.SetInside(holder, false)
		g.agree()
		r.pause(holder.Queue, serializer.Forever)
		r.store.SetInside(holder, true)
		other.untilSynced("that the holder is inside", func() bool { return other.store.Inside(other.known[idOf(holder)]) })
		other.expect(!other.store.Inside(other.find(idOf(waiter))), "a waiter of store %d is inside", r.index)
		r.resume(holder.Queue)
		r.remove(holder)
		r.remove(waiter)
	}
}

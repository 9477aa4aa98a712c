package enginetest

import (
	"context"
	"fmt"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// pauser returns an engine that can pause queues; it panics if the engine cannot.
func (s *space) pauser(i int) serializer.Pauser { return s.on(i).(serializer.Pauser) }

// pause pauses a queue by an engine.
func (s *space) pause(i int, queue string, until time.Time) {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), s.Patience)
	defer cancel()
	if err := s.pauser(i).Pause(ctx, queue, until); err != nil {
		s.Fatalf("pausing %q: %v", queue, err)
	}
	s.listsPause(queue, func(end *time.Time) bool { return end != nil })
}

// resume ends a pause.
func (s *space) resume(i int, queue string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), s.Patience)
	defer cancel()
	if err := s.pauser(i).Resume(ctx, queue); err != nil {
		s.Fatalf("resuming %q: %v", queue, err)
	}
	s.listsPause(queue, func(end *time.Time) bool { return end == nil })
}

// listsPause waits until all engines list a pause as expected.
func (s *space) listsPause(queue string, ok func(end *time.Time) bool) {
	s.Helper()
	for i, e := range s.engines {
		s.until(fmt.Sprintf("engine %d lists the pause of %q, or its end", i, queue), func() bool { return ok(s.queue(e, queue).PausedUntil) })
	}
}

// lists waits until all engines list so many inside and waiting.
func (s *space) lists(queue string, inside, waiting int) {
	s.Helper()
	for i, e := range s.engines {
		s.until(fmt.Sprintf("engine %d lists %d inside and %d waiting", i, inside, waiting), func() bool {
			q := s.queue(e, queue)
			return q.Inside == inside && q.Waiting == waiting
		})
	}
}

// While a queue is paused, its holder finishes and nobody enters; all keep their
// places, and enter in order once it is resumed. All lists show who is inside.
func testPause(s *space) {
	name := s.arrival().Queue
	for i := range len(s.engines) {
		holder := s.enter(0, s.arrival())
		first, second := s.join(1, s.arrival()), s.join(0, s.arrival())
		s.pause(i, name, time.Time{})
		s.listsPause(name, func(end *time.Time) bool { return end != nil && end.Equal(serializer.Resumed) })
		s.lists(name, 1, 2)
		third := s.join(1, s.arrival())
		holder.leave()
		s.lists(name, 0, 3)
		for _, v := range []*visitor{first, second, third} {
			v.stillWaits("the queue is paused")
		}
		second.hangUp(errHungUp)
		_ = second.refused(serializer.ReasonGone, errHungUp)
		first.stillWaits("the queue is paused, and another gave up")
		s.resume(i+1, name)
		first.enters()
		third.stillWaits("the first is inside")
		first.leave()
		third.enters().leave()
	}
}

// Several that are inside when a pause begins are all listed as inside, on all engines,
// and none follows them.
func testPauseSeveralInside(s *space) {
	a := s.ruled(serializer.Rule{Limit: 3})
	var inside []*visitor
	for i := range 3 {
		inside = append(inside, s.enter(i, a))
	}
	next := s.join(1, a)
	s.pause(0, a.Queue, time.Time{})
	for i, v := range inside {
		s.lists(a.Queue, len(inside)-i, 1)
		v.leave()
	}
	s.lists(a.Queue, 0, 1)
	next.stillWaits("the queue is paused")
	s.resume(1, a.Queue)
	next.enters().leave()
}

// A pause needs no ticket. It ends by itself, not before its time; another pause
// replaces its end.
func testPauseEnds(s *space) {
	name := s.arrival().Queue
	s.pause(0, name, time.Time{})
	until := time.Now().Add(2 * time.Second)
	s.pause(1, name, until)
	s.listsPause(name, func(end *time.Time) bool { return end != nil && end.Before(serializer.Resumed) })
	waiters := []*visitor{s.join(0, s.arrival()), s.join(1, s.arrival())}
	for _, v := range waiters {
		v.enters()
		if now := time.Now(); now.Before(until) {
			s.Errorf("%v: entered %s before the end of the pause", v, until.Sub(now))
		}
		v.leave()
	}
	s.listsPause(name, func(end *time.Time) bool { return end == nil })
	if err := s.pauser(0).Pause(context.Background(), name, time.Now().Add(-time.Minute)); err == nil {
		s.Errorf("a pause that has ended before it begins is no error")
	}
}

// Pausing a group pauses each of its queues, and no other, until the group is resumed
// and the queue itself is, too.
func testPauseGroup(s *space) {
	group := s.name("{user}_")
	member := func(queue string) serializer.Arrival {
		a := s.arrival()
		a.Queue, a.Group = s.name(queue), group
		return a
	}
	holder := s.enter(0, member("ann_"))
	s.pause(1, group, time.Time{})
	ann, bob := s.join(1, member("ann_")), s.join(0, member("bob_"))
	s.enter(1, s.arrival()).leave()
	holder.leave()
	ann.stillWaits("its group is paused")
	s.pause(0, ann.arrival.Queue, time.Time{})
	s.resume(0, group)
	bob.enters().leave()
	ann.stillWaits("its queue is paused")
	s.resume(1, ann.arrival.Queue)
	s.resume(1, ann.arrival.Queue) // of none
	ann.enters().leave()
}

// All other ways out of a queue stay open during a pause: the timeout, a full queue, a
// later arrival, and eviction.
func testRefusalsInPause(s *space) {
	name := s.arrival().Queue
	s.pause(0, name, time.Time{})
	s.refuseLate(1, 0)
	first := s.join(0, s.latest(1))
	second := s.join(1, s.latest(1))
	first.superseded()
	full := s.arrival()
	full.MaxWaiting = 1
	_ = s.start(0, full).refused(serializer.ReasonFull, serializer.ErrFull)
	if err := s.evict(0, name, second.token()); err != nil {
		s.Fatalf("evicting %v: %v", second, err)
	}
	_ = second.refused(serializer.ReasonEvicted, serializer.ErrEvicted)
	s.resume(1, name)
}

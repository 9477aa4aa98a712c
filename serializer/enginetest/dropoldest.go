package enginetest

import (
	"fmt"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// latest is an arrival that takes the place of the oldest waiter.
func (s *space) latest(waiting int) serializer.Arrival {
	a := s.arrival()
	a.MaxWaiting, a.DropOldest = waiting, true
	return a
}

// superseded waits for the refusal of a visitor that a later one has superseded.
func (v *visitor) superseded() {
	v.space.Helper()
	_ = v.refused(serializer.ReasonSuperseded, serializer.ErrSuperseded)
}

// If one may wait, it is the latest; the holder stays.
func testDropOldest(s *space) {
	holder := s.enter(0, s.latest(1))
	waiter := s.join(1, s.latest(1))
	for i := range 2 * len(s.engines) {
		next := s.join(i, s.latest(1))
		waiter.superseded()
		next.stillWaits("the first is inside")
		waiter = next
	}
	holder.expectNoRevoke()
	holder.leave()
	waiter.enters().leave()
}

// Of several waiters, the first to come is the first to be superseded, and the
// others keep their order.
func testDropOldestOfSeveral(s *space) {
	holder := s.enter(1, s.latest(3))
	var queue []*visitor
	for i := range 8 {
		queue = append(queue, s.join(i, s.latest(3)))
		if i >= 3 {
			queue[i-3].superseded()
		}
	}
	holder.leave()
	for _, v := range queue[5:] {
		v.enters().leave()
	}
}

// Of many that come at once, the first enters, and after it only the last.
func testDropOldestBurst(s *space) {
	holder := s.enter(0, s.latest(1))
	burst := make([]*visitor, 100)
	for i := range burst {
		burst[i] = s.start(i, s.latest(1))
	}
	s.until("all but one of a hundred are refused", func() bool {
		returned := 0
		for _, v := range burst {
			if v.returned() {
				returned++
			}
		}
		return returned == len(burst)-1
	})
	holder.leave()
	entered := 0
	for _, v := range burst {
		if v.await("settled"); v.err == nil {
			entered++
			v.leave()
			continue
		}
		_ = v.refusal(serializer.ReasonSuperseded, serializer.ErrSuperseded)
	}
	if entered != 1 {
		s.Errorf("%d of a hundred entered after the first; expected 1", entered)
	}
}

// Bug: behind a waiter that is never superseded, such as one from before a reload or in
// a stopped process, the others were not superseded either. So the queue grew beyond its
// length.
func testDropOldestBehindAnother(s *space) {
	holder := s.enter(0, s.arrival())
	patient := s.join(1, s.arrival())
	waiter := s.join(0, s.latest(1))
	for range 5 {
		next := s.join(0, s.latest(1))
		waiter.superseded()
		next.stillWaits("the first is inside")
		waiter = next
	}
	patient.stillWaits("it did not ask to be superseded")
	holder.leave()
	patient.enters().leave()
	waiter.enters().leave()
}

// Each queue has its own count. A waiter that did not ask for it is not superseded.
// When a writer is superseded, the readers behind it enter beside those inside.
func testDropOldestRules(s *space) {
	first, other := s.enter(0, s.latest(1)), s.latest(1)
	waiter := s.join(1, s.latest(1))
	other.Queue = s.name("b_")
	beside := s.enter(0, other)
	besideWaiter := s.join(1, other)
	waiter.stillWaits("those in another queue do not count")
	beside.leave()
	besideWaiter.enters().leave()
	first.leave()
	waiter.enters().leave()

	modest := s.enter(0, s.arrival())
	patient := s.join(1, s.arrival())
	latest := s.join(0, s.latest(1))
	patient.stillWaits("it did not ask to be superseded")
	latest.stillWaits("one is inside")
	modest.leave()
	patient.enters().leave()
	latest.enters().leave()

	reader := s.latest(1)
	reader.Rule = serializer.Rule{Shared: true}
	inside := []*visitor{s.enter(0, reader), s.enter(1, reader)}
	writer := s.join(1, s.latest(1))
	writer.stillWaits(fmt.Sprintf("%d readers are inside", len(inside)))
	inside = append(inside, s.enter(0, reader)) // behind the writer, which it supersedes
	writer.superseded()
	for _, v := range inside {
		v.leave()
	}
}

package enginetest

import (
	"context"
	"errors"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

var errHungUp = errors.New("hung up")

// A visitor is refused when its time is up, not before, and leaves no ticket.
func testTimeout(s *space) {
	holder, waiter := s.enter(0, s.arrival()), s.join(1, s.arrival())
	for i := range 2 * len(s.engines) {
		s.refuseLate(i, 2)
	}
	waiter.stillWaits("the first is inside")
	holder.leave()
	waiter.enters().leave()
}

// refuseLate sends visitors with short timeouts until one has got a ticket in
// time. On a busy machine, that may take longer.
func (s *space) refuseLate(i, position int) {
	s.Helper()
	hasty := 0 // refused before they knew of a ticket: they may have had one meanwhile
	for timeout := 20 * time.Millisecond; timeout < s.Patience; timeout *= 2 {
		a := s.arrival()
		a.Timeout = timeout
		start := time.Now()
		refused := s.start(i, a).refused(serializer.ReasonTimeout, serializer.ErrTimeout)
		if waited := time.Since(start); waited < timeout {
			s.Errorf("refused for %v after %s; its timeout is %s", refused.Err, waited, timeout)
		}
		if refused.Token == 0 {
			hasty++
			continue
		}
		if refused.Position < position || refused.Position > position+hasty {
			s.Errorf("refused at position %d; expected %d, or up to %d more", refused.Position, position, hasty)
		}
		return
	}
	s.Errorf("nobody got a ticket in %s", s.Patience)
}

// MaxWaiting counts those who wait, on all engines, and not those inside.
func testFull(s *space) {
	a := s.arrival()
	a.MaxWaiting = 1
	holder := s.enter(0, a)
	first := s.join(1, a)
	for i := range len(s.engines) {
		_ = s.start(i, a).refused(serializer.ReasonFull, serializer.ErrFull)
	}
	wider := a
	wider.MaxWaiting = 2
	second := s.join(0, wider)
	first.stillWaits("the holder is inside")
	holder.leave()
	first.enters().leave()
	second.enters()
	third := s.join(1, a)
	second.leave()
	third.enters().leave()
}

// A visitor that hangs up is refused with the cause, and those behind it stay in
// order.
func testGone(s *space) {
	holder := s.enter(0, s.arrival())
	first, second, third := s.join(1, s.arrival()), s.join(0, s.arrival()), s.join(1, s.arrival())
	second.hangUp(errHungUp)
	_ = second.refused(serializer.ReasonGone, errHungUp)
	third.stillWaits("two are before it")
	first.hangUp(errHungUp)
	_ = first.refused(serializer.ReasonGone, errHungUp)
	third.stillWaits("the holder is inside")
	holder.leave()
	third.enters().leave()
}

// A visitor that hung up before it came does not wait.
func testGoneBefore(s *space) {
	holder := s.enter(0, s.arrival())
	for i := range len(s.engines) {
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(errHungUp)
		_ = s.startIn(ctx, i, s.arrival()).refused(serializer.ReasonGone, errHungUp)
	}
	holder.leave()
	s.enter(0, s.arrival()).leave()
}

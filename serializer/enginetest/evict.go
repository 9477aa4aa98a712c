package enginetest

import (
	"errors"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// A waiter that is evicted, by its own engine or another, is refused. Its Revoke is
// not called, because it holds no turn.
func testEvictWaiter(s *space) {
	for i := range len(s.engines) {
		holder, waiter := s.enter(0, s.arrival()), s.join(0, s.arrival())
		next := s.join(1, s.arrival())
		token := waiter.token()
		if err := s.evict(i, waiter.arrival.Queue, token); err != nil {
			s.Fatalf("evicting %v: %v", waiter, err)
		}
		_ = waiter.refused(serializer.ReasonEvicted, serializer.ErrEvicted)
		waiter.expectNoRevoke()
		next.stillWaits("the first is inside")
		s.until("the evicted ticket cannot be evicted again", func() bool {
			return errors.Is(s.evict(i, waiter.arrival.Queue, token), serializer.ErrNoTicket)
		})
		holder.leave()
		next.enters().leave()
	}
}

// An evicted holder gets one call of Revoke, and keeps its turn until it leaves.
func testEvictHolder(s *space) {
	for i := range len(s.engines) {
		holder := s.enter(0, s.arrival())
		next := s.join(1, s.arrival())
		if err := s.evict(i, holder.arrival.Queue, holder.turn.Token()); err != nil {
			s.Fatalf("evicting %v: %v", holder, err)
		}
		holder.expectRevoke(serializer.ErrEvicted)
		next.stillWaits("the evicted holder has not left")
		if state, listed := holder.ticket(); !listed || state.State != serializer.StateInside {
			s.Errorf("%v: in the list %+v; expected it inside until it leaves", holder, state)
		}
		_ = s.evict(i, holder.arrival.Queue, holder.turn.Token()) // may fail; must not call Revoke again
		holder.expectNoRevoke()
		holder.leave()
		next.enters().leave()
		holder.expectNoRevoke()
	}
}

// What is not in the queue cannot be evicted from it.
func testEvictNobody(s *space) {
	holder := s.enter(0, s.arrival())
	token := holder.turn.Token()
	for i := range len(s.engines) {
		for _, c := range []struct {
			queue string
			token uint64
		}{
			{holder.arrival.Queue, token + 1},
			{holder.arrival.Queue, 1},
			{s.name("a"), token},
			{s.name("empty_"), 1},
		} {
			if err := s.evict(i, c.queue, c.token); !errors.Is(err, serializer.ErrNoTicket) {
				s.Errorf("evicting %d from %q: %v; expected %v", c.token, c.queue, err, serializer.ErrNoTicket)
			}
		}
	}
	holder.expectNoRevoke()
	holder.leave()
}

package enginetest

import (
	"errors"
	"fmt"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Closing refuses all waiters and arrivals, and notifies the holders, who
// stay.
func testClose(s *space) {
	holder := s.enter(0, s.arrival())
	waiter := s.start(0, s.arrival())
	s.until("the waiter has its ticket", func() bool { _, listed := waiter.ticket(); return listed || waiter.returned() })
	closed := s.close(0)
	_ = waiter.refusal(serializer.ReasonStorage, serializer.ErrClosed)
	holder.expectRevoke(serializer.ErrClosed)
	late := s.start(0, s.arrival())
	_ = late.refusal(serializer.ReasonStorage, serializer.ErrClosed)
	if n := late.joined.Load(); n != 0 {
		s.Errorf("Joined was called %d times on a closed engine", n)
	}
	holder.leave()
	s.await(closed)
	if len(holder.revoked)+len(waiter.revoked)+len(late.revoked) > 0 {
		s.Errorf("Revoke was called more than once, or for one that was not inside")
	}
	// What these calls return is up to the engine. But they must return.
	_, _ = s.on(0).Queues(s.Context())
	if err := s.evict(0, holder.arrival.Queue, holder.turn.Token()); err == nil {
		s.Errorf("evicting a holder that has left a closed engine succeeded")
	}
}

// A closing engine refuses its waiters one after the other. None of them enters on the
// way because one before it has gone: the reader here could as soon as no writer is
// before it.
//
// Bug: the etcd engine and the lock-file engine let such readers in while they closed.
func testCloseBeforeReaders(s *space) {
	reader := serializer.Rule{Shared: true}
	var holders, waiters []*visitor
	for i := range 8 { // an engine may go through them in any order
		for n, rule := range []serializer.Rule{reader, {}, reader, reader} {
			a := s.ruled(rule)
			a.Queue = s.name(fmt.Sprintf("a%d_", i))
			if n == 0 {
				holders = append(holders, s.enter(0, a))
			} else {
				waiters = append(waiters, s.join(0, a))
			}
		}
	}
	closed := s.close(0)
	for _, v := range waiters {
		_ = v.refusal(serializer.ReasonStorage, serializer.ErrClosed)
	}
	for _, v := range holders {
		v.expectRevoke(serializer.ErrClosed)
		v.leave()
	}
	s.await(closed)
}

// While one engine closes, the visitors of another engine wait until its holders
// have left.
func testCloseOne(s *space) {
	holder := s.enter(0, s.arrival())
	waiter := s.join(1, s.arrival())
	behind, last := s.join(0, s.arrival()), s.join(1, s.arrival())
	closed := s.close(0)
	holder.expectRevoke(serializer.ErrClosed)
	_ = behind.refusal(serializer.ReasonStorage, serializer.ErrClosed)
	behind.gone(s.on(1))
	s.engines = s.engines[1:]
	waiter.stillWaits("the holder of a closed engine has not left")
	holder.leave()
	waiter.enters()
	s.await(closed)
	last.stillWaits("another one is inside")
	waiter.leave()
	last.enters().leave()
}

// close closes an engine.
func (s *space) close(i int) <-chan error {
	closed := make(chan error, 1)
	e := s.on(i)
	go func() { closed <- errors.Join(e.Close(), e.Close()) }()
	return closed
}

func (s *space) await(closed <-chan error) {
	s.Helper()
	s.until("Close has returned", func() bool { return len(closed) > 0 })
	if err := <-closed; err != nil {
		s.Errorf("closing: %v", err)
	}
}

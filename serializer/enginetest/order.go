package enginetest

import (
	"fmt"

	"github.com/orderly-http/caddy-orderly/serializer"
)

func testPath(s *space) {
	path := s.on(0).Path()
	for i, e := range s.engines {
		if got := e.Path(); got != path {
			s.Errorf("engine %d: path %q; the first one said %q", i, got, path)
		}
	}
	v := s.enter(0, s.arrival())
	if q := s.queue(v.engine, v.arrival.Queue); q.Path != path {
		s.Errorf("the list says path %q; the engine says %q", q.Path, path)
	}
	v.leave()
}

// Visitors enter one by one, in the order in which they got their tickets.
func testOrder(s *space) {
	const visitors = 8
	var queue []*visitor
	for i := range visitors {
		queue = append(queue, s.join(i, s.arrival()))
	}
	for i, v := range queue {
		v.enters()
		if got := v.turn.Position(); got != i {
			s.Errorf("%v: position %d; expected %d", v, got, i)
		}
		for _, behind := range queue[i+1:] {
			if behind.returned() {
				s.Fatalf("%v returned with error %v, though %d others are before it", behind, behind.err, visitors-i-1)
			}
		}
		if i+1 < visitors {
			queue[i+1].stillWaits("another one is inside")
		}
		v.leave()
	}
}

// An arrival after Joined was called gets a later ticket.
func testJoined(s *space) {
	holder := s.enter(0, s.arrival())
	var queue []*visitor
	for range 20 {
		a := s.arrival()
		called := make(chan struct{}, 16)
		a.Joined = func() { called <- struct{}{} }
		v := s.start(0, a)
		s.until(fmt.Sprintf("Joined is called for %v", v), func() bool { return len(called) > 0 })
		queue = append(queue, v)
	}
	holder.leave()
	last := holder.turn.Token()
	for _, v := range queue {
		v.enters()
		if n := v.joined.Load(); n != 1 {
			s.Errorf("%v: Joined was called %d times", v, n)
		}
		if token := v.turn.Token(); token <= last {
			s.Errorf("%v: token %d; one that joined before has %d", v, token, last)
		} else {
			last = token
		}
		v.leave()
	}
}

// Tokens grow from turn to turn, even if tickets were given up in between.
func testTokens(s *space) {
	var last uint64
	for i := range 30 {
		v := s.enter(i, s.arrival())
		if token := v.turn.Token(); token <= last {
			s.Errorf("%v: token %d after %d", v, token, last)
		} else {
			last = token
		}
		if i%5 == 0 {
			waiter := s.join(i+1, s.arrival())
			if token := waiter.token(); token <= last {
				s.Errorf("%v: token %d after %d", waiter, token, last)
			} else {
				last = token
			}
			waiter.hangUp(errHungUp)
			_ = waiter.refused(serializer.ReasonGone, errHungUp)
		}
		v.leave()
	}
}

// Leave does nothing after the first call, whoever is inside by then.
func testLeaveTwice(s *space) {
	first := s.enter(0, s.arrival())
	second, third := s.join(0, s.arrival()), s.join(1, s.arrival())
	first.leave()
	second.enters()
	first.turn.Leave()
	third.stillWaits("the second is inside")
	second.leave()
	third.enters()
	fourth := s.join(0, s.arrival())
	first.turn.Leave()
	second.turn.Leave()
	fourth.stillWaits("the third is inside")
	third.leave()
	fourth.enters().leave()
}

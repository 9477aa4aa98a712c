package serializer

import (
	"math/rand/v2"
	"testing"
)

// A process that comes to a directory hears of the tickets there in no order.
// It used to count each one that came before a ticket it had heard of as
// inside, and so took too few of them for waiting: more could wait than
// [Arrival.MaxWaiting], and the lists showed too many inside.
func TestLineHeardOfInNoOrder(t *testing.T) {
	for _, c := range []struct {
		rule   Rule
		inside int
	}{
		{Rule{}, 1},
		{Rule{Limit: 3}, 3},
		{Rule{Shared: true}, 20},
		{Rule{Shared: true, Limit: 4}, 4},
	} {
		l := &line{prefix: "a_"}
		for _, i := range rand.Perm(20) {
			l.insert(&entry{Ticket: Ticket{Prefix: "a_", Stamp: minStamp + uint64(i)}, rule: c.rule})
			l.advance(nil)
		}
		if l.admitted != c.inside || l.waiting() != 20-c.inside {
			t.Errorf("%+v: %d inside, %d waiting; expected %d and %d", c.rule, l.admitted, l.waiting(), c.inside, 20-c.inside)
		}
		for e, n := l.head, 0; e != nil; e, n = e.next, n+1 {
			if e.admitted != (n < c.inside) {
				t.Errorf("%+v: ticket %d is inside: %t", c.rule, n, e.admitted)
			}
		}
	}
}

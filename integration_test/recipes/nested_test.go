package recipes

import (
	"fmt"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// nest is a recipe with outer queues in front of an inner one, app_.
type nest struct {
	*kitchen
	inner   int // how many may be inside
	answers []<-chan testcaddy.Answer
	inside  []*testcaddy.Hit
}

// newNest runs a recipe. If more than one may be inside, it adds what the text says.
func newNest(t *testing.T, heading string, outer, inner int) *nest {
	t.Helper()
	var settings []string
	if inner > 1 {
		settings = []string{
			"queue_length 100\n", fmt.Sprintf("queue_length 100\nconcurrency %d\n", outer),
			"serialize app_\n", fmt.Sprintf("serialize app_ {\nconcurrency %d\n}\n", inner),
		}
	}
	return &nest{kitchen: cook(t, heading, settings...), inner: inner}
}

// send sends requests at once, and waits until the inner queue has so many tickets.
func (n *nest) send(t *testing.T, requests int, path, customer string, tickets int) {
	t.Helper()
	for range requests {
		n.answers = append(n.answers, n.get(t, path, "X-Api-Key", customer))
	}
	n.awaitTickets(t, "app_", tickets)
	for len(n.inside) < min(tickets, n.inner) {
		n.inside = append(n.inside, n.Next())
	}
}

// leaveUntil lets the first of those inside leave, again and again, until a request has
// entered. It returns how many have left.
func (n *nest) leaveUntil(name string) (left int) {
	for n.inside[len(n.inside)-1].Name != name {
		n.inside[left].Leave()
		n.inside = append(n.inside, n.Next())
		left++
	}
	return left
}

// finish checks that all requests are served.
func (n *nest) finish(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		n.Open(name)
	}
	for _, answer := range n.answers {
		testcaddy.Await(t, answer).Want(t, 200)
	}
}

// Of ten low requests, an urgent one meets no more in the inner queue than their own queue lets in.
func TestPriorityLanes(t *testing.T) {
	const low = 10
	for _, test := range []struct {
		outer, inner int
		urgent       int // requests of its kind that came before
		left         int // requests that leave before it enters
	}{
		{1, 1, 0, 1}, // the low one inside
		{1, 1, 1, 2}, // the urgent one inside, and one low one
		{3, 4, 0, 0}, // a place is free
		{3, 4, 4, 4}, // one of those inside, and three low ones
		{4, 4, 0, 1},
		{4, 4, 4, 5},
	} {
		t.Run(fmt.Sprintf("%d of %d, %d urgent", test.outer, test.inner, test.urgent), func(t *testing.T) {
			n := newNest(t, "Priority lanes", test.outer, test.inner)
			n.send(t, test.urgent, "early", "", test.urgent)
			n.send(t, low, "reports/low", "", test.urgent+test.outer)
			n.awaitTickets(t, "low_", low)
			n.send(t, 1, "urgent", "", test.urgent+test.outer+1)
			if left := n.leaveUntil("urgent"); left != test.left {
				t.Errorf("%d requests left before the urgent one entered; expected %d", left, test.left)
			}
			n.finish(t, "early", "reports/low", "urgent")
		})
	}
}

// Of the floods of other customers, a request meets no more in the inner queue than the share
// of each lets in. With the key of a flood, it waits for the whole of it.
func TestFairShares(t *testing.T) {
	const flood = 40
	for _, test := range []struct {
		outer, inner int
		floods       int    // customers that send so many requests
		key          string // of the request that comes after them
		left         int    // requests that leave before it enters
	}{
		{1, 1, 1, "quiet", 1},
		{1, 1, 3, "quiet", 3},
		{1, 1, 1, "0", flood},
		{1, 4, 3, "quiet", 0}, // a place is free
		{1, 4, 4, "quiet", 1},
		{2, 4, 1, "quiet", 0},
		{2, 4, 3, "quiet", 3}, // six are ahead of it, of which four are inside
		{4, 4, 1, "quiet", 1},
		{4, 4, 3, "quiet", 9},
	} {
		t.Run(fmt.Sprintf("%d of %d, %d floods, key %s", test.outer, test.inner, test.floods, test.key), func(t *testing.T) {
			n := newNest(t, "Fair shares", test.outer, test.inner)
			for i := range test.floods {
				n.send(t, flood, "flood", fmt.Sprint(i), (i+1)*test.outer)
				n.awaitTickets(t, "share_", (i+1)*flood)
			}
			tickets := test.floods * test.outer
			if test.key == "quiet" {
				tickets++
			}
			n.send(t, 1, "one", test.key, tickets)
			n.awaitTickets(t, "share_", test.floods*flood+1)
			if left := n.leaveUntil("one"); left != test.left {
				t.Errorf("%d requests left before the one entered; expected %d", left, test.left)
			}
			n.finish(t, "flood", "one")
		})
	}
}

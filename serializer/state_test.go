package serializer

import (
	"context"
	"testing"
	"time"
)

// named is a Requester.
type named string

func (n named) Request() Request { return Request{Path: string(n)} }

// The state tells the wait and the hold of each ticket apart, and whom it is for;
// it used to have one time, whose meaning depended on the process that was asked.
func TestStateOfTickets(t *testing.T) {
	engines(t, func(t *testing.T, e Engine) {
		start := time.Now()
		holder := arrival("a_")
		holder.Rule, holder.Requester = Rule{Limit: 1}, named("holder")
		turn := enter(t, e, holder)
		waiter := arrival("a_")
		waiter.Requester = named("waiter")
		waiting := started(e, waiter)
		var q QueueState
		waitUntil(t, "both have a ticket", func() bool {
			queues, err := e.Queues(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			q = queues[0]
			return len(q.Tickets) == 2
		})
		inside, behind := q.Tickets[0], q.Tickets[1]
		if q.Inside != 1 || q.Waiting != 1 || q.Limit != 1 {
			t.Errorf("%d inside, %d waiting, limit %d; expected one each", q.Inside, q.Waiting, q.Limit)
		}
		if !recent(start, inside.Arrived) || !recent(start, inside.Entered) || !inside.Since.Equal(inside.Entered) {
			t.Errorf("inside: arrived %v, entered %v, since %v", inside.Arrived, inside.Entered, inside.Since)
		}
		if !recent(start, behind.Arrived) || !behind.Entered.IsZero() || !behind.Since.Equal(behind.Arrived) {
			t.Errorf("waiting: arrived %v, entered %v, since %v", behind.Arrived, behind.Entered, behind.Since)
		}
		if inside.Requester != named("holder") || behind.Requester != named("waiter") {
			t.Errorf("requesters are %v and %v", inside.Requester, behind.Requester)
		}
		turn.Leave()
		get(t, waiting).Leave()
	})
}

func recent(start, moment time.Time) bool {
	const step = time.Millisecond // of the wall clock, against the tickets' microseconds
	return !moment.Before(start.Add(-step)) && !moment.After(time.Now().Add(step))
}

func TestLimitOfQueue(t *testing.T) {
	reader := Rule{Shared: true}
	for _, c := range []struct {
		name  string
		rules []Rule
		limit int
	}{
		{"alone", []Rule{{}}, 1},
		{"three at a time", []Rule{{Limit: 3}, {Limit: 3}}, 3},
		{"rules that differ", []Rule{{Limit: 1}, {Limit: 3}, {Limit: 2}}, 3},
		{"readers", []Rule{reader, reader}, 0},
		{"a reader behind a writer", []Rule{{Limit: 1}, reader}, 0},
		{"a writer behind a reader", []Rule{reader, {Limit: 1}}, 0},
		{"a few readers", []Rule{{Limit: 1}, {Shared: true, Limit: 4}}, 4},
	} {
		var q QueueState
		for _, r := range c.rules {
			q.Add(TicketState{}, r)
		}
		if q.Limit != c.limit {
			t.Errorf("%s: limit %d; expected %d", c.name, q.Limit, c.limit)
		}
	}
}

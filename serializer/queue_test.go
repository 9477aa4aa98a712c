package serializer

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// ticketOf makes a ticket that no engine has.
func ticketOf(number int, local bool, rule Rule) *Ticket {
	t := &Ticket{Number: uint64(number), Rule: rule}
	if local {
		t.waiter = &waiter{seenLimit: rule.Limit}
	}
	return t
}

// A process that opens a directory learns of the tickets there in no
// particular order. Bug: it counted each one before a ticket that it already
// knew as inside, and so too few as waiting. More could wait than
// Arrival.MaxWaiting allows, and the lists showed too many inside.
func TestTicketsHeardOfInNoOrder(t *testing.T) {
	for _, c := range []struct {
		rule   Rule
		inside int
	}{
		{Rule{}, 1},
		{Rule{Limit: 3}, 3},
		{Rule{Shared: true}, 20},
		{Rule{Shared: true, Limit: 4}, 4},
	} {
		var q ticketQueue
		for _, i := range rand.Perm(20) {
			q.insert(ticketOf(i, false, c.rule))
			for q.admitNext() != nil {
			}
		}
		if q.inside != c.inside || q.waiting() != 20-c.inside {
			t.Errorf("%+v: %d inside, %d waiting; expected %d and %d", c.rule, q.inside, q.waiting(), c.inside, 20-c.inside)
		}
		for e := range q.all() {
			if e.admitted != (int(e.Number) < c.inside) {
				t.Errorf("%+v: ticket %d is inside: %t", c.rule, e.Number, e.admitted)
			}
		}
	}
}

// The first local waiter with too many from itself to the end is superseded. Those that are
// inside, that are remote, or that did not ask for it stay.
func TestSuperseded(t *testing.T) {
	remote := func() *Ticket { return ticketOf(0, false, Rule{}) }
	local := func(most int) *Ticket {
		t := ticketOf(0, true, Rule{})
		t.mostWaiting = most
		return t
	}
	for _, c := range []struct {
		name  string
		queue []*Ticket // the first one is inside
		want  []int     // superseded, one after the other
	}{
		{"nobody waits", []*Ticket{local(1)}, nil},
		{"one may wait", []*Ticket{local(1), local(1)}, nil},
		{"the oldest of two", []*Ticket{local(1), local(1), local(1)}, []int{1}},
		{"behind one that did not ask", []*Ticket{local(1), local(0), local(1), local(1)}, []int{2}},
		{"behind a remote one", []*Ticket{local(1), remote(), local(2), local(2), local(2)}, []int{2}},
		{"different limits", []*Ticket{remote(), local(3), local(1), local(2), local(1)}, []int{1, 2}},
		{"remote ones count", []*Ticket{local(0), local(1), remote()}, []int{1}},
	} {
		var q ticketQueue
		for i, e := range c.queue {
			e.Number = uint64(i)
			q.insert(e)
			q.admitNext()
		}
		var got []int
		for e := q.superseded(); e != nil; e = q.superseded() {
			got = append(got, int(e.Number))
			q.remove(e)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: superseded are %v; expected %v", c.name, got, c.want)
		}
	}
}

// Tickets come and go in any order, and the queue is paused at times. The list is in order,
// the counts are those of the tickets, and the border admits what the rule admits.
func TestQueueAgainstModel(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var q ticketQueue
		var model []*Ticket
		for step := range 100 {
			switch n := r.IntN(6); {
			case n < 2:
				e := ticketOf(r.IntN(1000)*1000+step, r.IntN(2) == 0, Rule{Shared: r.IntN(3) == 0, Limit: r.IntN(4)})
				if e.Local() {
					e.Number += uint64(step) * 1_000_000 // one of ours comes last
				}
				q.insert(e)
				model = append(model, e)
				slices.SortFunc(model, func(a, b *Ticket) int { return cmp.Compare(a.Number, b.Number) })
			case n < 4 && len(model) > 0:
				i := r.IntN(len(model))
				q.remove(model[i])
				model = slices.Delete(model, i, i+1)
			case n == 4:
				q.setPaused(!q.paused && r.IntN(3) == 0)
			case n == 5:
				q.setLimit(1+r.IntN(4), func(Requester) bool { return r.IntN(2) == 0 })
			}
			for e := q.admitNext(); e != nil; e = q.admitNext() {
				checkEntry(t, e)
			}
			checkQueue(t, &q, model)
			if t.Failed() {
				return
			}
		}
	}
}

// A changed limit reaches the tickets that are there, while all are local. Bug: a reload let later
// tickets overtake one of another process, which had come after it and counted by the old limit; so
// did a lower limit.
func TestSetLimit(t *testing.T) {
	for _, c := range []struct {
		local         int // of eight; the others come before the change, or else after it
		before        bool
		limit, inside int // once as many have left as had to
	}{
		{8, true, 4, 4}, {8, true, 1, 1}, {8, true, 2, 2}, {7, true, 4, 2}, {7, true, 1, 2}, {7, false, 4, 2}, {7, false, 1, 2},
	} {
		var q ticketQueue
		come := func(from, to int) {
			for i := from; i < to; i++ {
				q.insert(ticketOf(i, i < c.local, Rule{Limit: 2}))
			}
			for q.admitNext() != nil {
			}
		}
		come(0, c.local)
		if c.before {
			come(c.local, 8)
		}
		q.setLimit(c.limit, func(Requester) bool { return true })
		come(q.length, 8)
		for q.inside >= c.inside {
			q.remove(q.first)
		}
		if come(0, 0); q.inside != min(q.length, c.inside) {
			t.Errorf("%+v: %d inside of %d once some have left", c, q.inside, q.length)
		}
	}
}

// checkEntry checks that a ticket may enter behind those before it.
func checkEntry(t *testing.T, e *Ticket) {
	t.Helper()
	ahead, readers, room := 0, 0, 0
	for o := e.prev; o != nil; o = o.prev {
		ahead++
		room = narrower(room, o.Rule.Capacity())
		readers += one(o.Rule.Shared)
	}
	if !e.Rule.Admits(ahead, readers, room) {
		t.Errorf("%+v enters behind %d, %d of them readers", e.Rule, ahead, readers)
	}
}

func checkQueue(t *testing.T, q *ticketQueue, model []*Ticket) {
	t.Helper()
	if got := slices.Collect(q.all()); !slices.Equal(got, model) {
		t.Errorf("the queue has %d tickets, or not in order; expected %d", len(got), len(model))
	}
	inside, local, localInside := 0, 0, 0
	for i, e := range model {
		local += one(e.Local())
		if !e.admitted {
			continue
		}
		inside++
		localInside += one(e.Local())
		if i > 0 && !model[i-1].admitted {
			t.Error("a ticket is inside behind one that waits")
		}
	}
	if inside < len(model) && q.border != model[inside] || inside == len(model) && q.border != nil {
		t.Error("the border is not behind those inside")
	}
	got := [...]int{q.length, q.inside, q.waiting(), q.localInside, q.localWaiting()}
	want := [...]int{len(model), inside, len(model) - inside, localInside, local - localInside}
	if got != want {
		t.Errorf("counts %v; expected %v", got, want)
	}
}

package queue

import (
	"math/rand/v2"
	"slices"
	"testing"
)

type ticket struct {
	Item[*ticket]
	number int
	local  bool
}

func (t *ticket) Before(o *ticket) bool { return t.number < o.number }
func (t *ticket) Local() bool           { return t.local }

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
		var q Queue[*ticket]
		for _, i := range rand.Perm(20) {
			q.Insert(&ticket{Item: Item[*ticket]{Rule: c.rule}, number: i})
			for q.Admit() != nil {
			}
		}
		if q.inside != c.inside || q.Waiting() != 20-c.inside {
			t.Errorf("%+v: %d inside, %d waiting; expected %d and %d", c.rule, q.inside, q.Waiting(), c.inside, 20-c.inside)
		}
		for e := range q.All() {
			if e.Admitted() != (e.number < c.inside) {
				t.Errorf("%+v: ticket %d is inside: %t", c.rule, e.number, e.Admitted())
			}
		}
	}
}

// The first local waiter with too many from itself to the end is superseded. Those that are
// inside, that are remote, or that did not ask for it stay.
func TestSuperseded(t *testing.T) {
	remote := func(most int) *ticket { return &ticket{Item: Item[*ticket]{MaxWaiting: most}} }
	local := func(most int) *ticket { return &ticket{Item: Item[*ticket]{MaxWaiting: most}, local: true} }
	for _, c := range []struct {
		name  string
		queue []*ticket // the first one is inside
		want  []int     // superseded, one after the other
	}{
		{"nobody waits", []*ticket{local(1)}, nil},
		{"one may wait", []*ticket{local(1), local(1)}, nil},
		{"the oldest of two", []*ticket{local(1), local(1), local(1)}, []int{1}},
		{"behind one that did not ask", []*ticket{local(1), local(0), local(1), local(1)}, []int{2}},
		{"behind a remote one", []*ticket{local(1), remote(0), local(2), local(2), local(2)}, []int{2}},
		{"different limits", []*ticket{remote(0), local(3), local(1), local(2), local(1)}, []int{1, 2}},
		{"remote ones count", []*ticket{local(0), local(1), remote(0)}, []int{1}},
	} {
		var q Queue[*ticket]
		for i, e := range c.queue {
			e.number = i
			q.Insert(e)
			q.Admit()
		}
		var got []int
		for e := q.Superseded(); e != nil; e = q.Superseded() {
			got = append(got, e.number)
			q.Remove(e)
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
		var q Queue[*ticket]
		var model []*ticket
		for step := range 100 {
			switch n := r.IntN(6); {
			case n < 2:
				e := &ticket{number: r.IntN(1000)*1000 + step, local: r.IntN(2) == 0}
				e.Rule = Rule{Shared: r.IntN(3) == 0, Limit: r.IntN(4)}
				if e.local {
					e.number += step * 1_000_000 // one of ours comes last
				}
				q.Insert(e)
				model = append(model, e)
				slices.SortFunc(model, func(a, b *ticket) int { return a.number - b.number })
			case n < 4 && len(model) > 0:
				i := r.IntN(len(model))
				q.Remove(model[i])
				model = slices.Delete(model, i, i+1)
			case n == 4:
				q.SetPaused(!q.Paused() && r.IntN(3) == 0)
			case n == 5:
				q.SetLimit(1 + r.IntN(4))
			}
			for e := q.Admit(); e != nil; e = q.Admit() {
				checkEntry(t, e)
			}
			checkQueue(t, &q, model)
			if t.Failed() {
				return
			}
		}
	}
}

// A changed limit reaches the tickets that are there. It grows only while all are local.
func TestSetLimit(t *testing.T) {
	for _, c := range []struct {
		remote        bool // the last of five
		limit, inside int  // once as many have left as had to
	}{
		{false, 4, 4}, {false, 1, 1}, {false, 2, 2}, {true, 4, 2}, {true, 1, 1},
	} {
		var q Queue[*ticket]
		for i := range 5 {
			q.Insert(&ticket{Item: Item[*ticket]{Rule: Rule{Limit: 2}}, number: i, local: i < 4 || !c.remote})
		}
		admit := func() {
			for q.Admit() != nil {
			}
		}
		admit()
		q.SetLimit(c.limit)
		if admit(); q.inside != max(c.inside, 2) {
			t.Errorf("%+v: %d inside after the change", c, q.inside)
		}
		for q.inside >= c.inside {
			q.Remove(q.first)
		}
		if admit(); q.inside != min(q.Len(), c.inside) {
			t.Errorf("%+v: %d inside of %d once some have left", c, q.inside, q.Len())
		}
	}
}

// checkEntry checks that a ticket may enter behind those before it.
func checkEntry(t *testing.T, e *ticket) {
	t.Helper()
	ahead, readers, room := 0, 0, 0
	for o := e.prev; o != nil; o = o.prev {
		ahead++
		room = Narrower(room, o.Rule.Capacity())
		readers += one(o.Rule.Shared)
	}
	if !e.Rule.Admits(ahead, readers, room) {
		t.Errorf("%+v enters behind %d, %d of them readers", e.Rule, ahead, readers)
	}
}

func checkQueue(t *testing.T, q *Queue[*ticket], model []*ticket) {
	t.Helper()
	if got := slices.Collect(q.All()); !slices.Equal(got, model) {
		t.Errorf("the queue has %d tickets, or not in order; expected %d", len(got), len(model))
	}
	inside, local, localInside := 0, 0, 0
	for i, e := range model {
		local += one(e.local)
		if !e.Admitted() {
			continue
		}
		inside++
		localInside += one(e.local)
		if i > 0 && !model[i-1].Admitted() {
			t.Error("a ticket is inside behind one that waits")
		}
	}
	if inside < len(model) && q.Border() != model[inside] || inside == len(model) && q.Border() != nil {
		t.Error("the border is not behind those inside")
	}
	got := [...]int{q.Len(), q.inside, q.Waiting(), q.LocalInside(), q.LocalWaiting()}
	want := [...]int{len(model), inside, len(model) - inside, localInside, local - localInside}
	if got != want {
		t.Errorf("counts %v; expected %v", got, want)
	}
}

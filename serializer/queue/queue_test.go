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
		if q.Inside() != c.inside || q.Waiting() != 20-c.inside {
			t.Errorf("%+v: %d inside, %d waiting; expected %d and %d", c.rule, q.Inside(), q.Waiting(), c.inside, 20-c.inside)
		}
		for e := range q.All() {
			if e.Admitted() != (e.number < c.inside) {
				t.Errorf("%+v: ticket %d is inside: %t", c.rule, e.number, e.Admitted())
			}
		}
	}
}

// A ticket behind one whose rule is not known enters only if it would have to be
// alone anyway, or once the rule is known.
func TestUnsureRule(t *testing.T) {
	for _, c := range []struct {
		name     string
		rule     Rule // of the second
		known    Rule // of the first, as it turns out
		together bool
	}{
		{"reader behind reader", Rule{Shared: true}, Rule{Shared: true}, true},
		{"reader behind writer", Rule{Shared: true}, Rule{}, false},
		{"limited behind reader", Rule{Limit: 2}, Rule{Shared: true}, false},
		{"limited behind limited", Rule{Limit: 2}, Rule{Limit: 2}, true},
	} {
		var q Queue[*ticket]
		first := &ticket{Item: Item[*ticket]{Unsure: true}, number: 1}
		second := &ticket{Item: Item[*ticket]{Rule: c.rule}, number: 2, local: true}
		q.Insert(first)
		q.Insert(second)
		if q.Admit() != first || q.Admit() != nil {
			t.Errorf("%s: not only the first is admitted while its rule is unknown", c.name)
		}
		q.Identify(first, c.known)
		if (q.Admit() == second) != c.together {
			t.Errorf("%s: together %t; expected %t", c.name, !c.together, c.together)
		}
	}
}

// If the engine learns late of a ticket that belongs before one of ours that is inside,
// nobody is sent out.
func TestLateTicketBeforeLocalOne(t *testing.T) {
	var q Queue[*ticket]
	ours := &ticket{number: 5, local: true}
	q.Insert(ours)
	q.Admit()
	late := &ticket{number: 3}
	q.Insert(late)
	if !ours.Admitted() || !late.Admitted() || q.Inside() != 2 || q.LocalInside() != 1 || q.First() != late {
		t.Errorf("%d inside, %d of ours", q.Inside(), q.LocalInside())
	}
}

// Tickets come, go and are identified in any order. The list is in order, the
// counts are those of the tickets, and the border admits what the rule admits.
func TestQueueAgainstModel(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var q Queue[*ticket]
		var model []*ticket
		for step := range 100 {
			switch n := r.IntN(5); {
			case n < 2:
				e := &ticket{number: r.IntN(1000)*1000 + step, local: r.IntN(2) == 0}
				if e.Unsure = !e.local && r.IntN(3) == 0; !e.Unsure {
					e.Rule = Rule{Shared: r.IntN(3) == 0, Limit: r.IntN(4)}
				}
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
			case len(model) > 0:
				if e := model[r.IntN(len(model))]; !e.local {
					q.Identify(e, Rule{Shared: r.IntN(2) == 0, Limit: r.IntN(4)})
				}
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

// checkEntry checks that a ticket may enter behind those before it.
func checkEntry(t *testing.T, e *ticket) {
	t.Helper()
	ahead, readers, unsure := 0, 0, 0
	for o := e.Prev(); o != nil; o = o.Prev() {
		ahead++
		readers += one(o.Rule.Shared)
		unsure += one(o.Unsure)
	}
	if !e.Rule.Admits(ahead, readers) || e.local && unsure > 0 && !e.Rule.Alone() {
		t.Errorf("%+v enters behind %d, %d of them readers, %d unsure", e.Rule, ahead, readers, unsure)
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
	if waiters := slices.Collect(From(q.Border())); !slices.Equal(waiters, model[inside:]) {
		t.Errorf("%d wait; expected %d", len(waiters), len(model)-inside)
	}
	got := [...]int{q.Len(), q.Inside(), q.Waiting(), q.Local(), q.LocalInside(), q.LocalWaiting(), q.Remote()}
	want := [...]int{len(model), inside, len(model) - inside, local, localInside, local - localInside, len(model) - local}
	if got != want {
		t.Errorf("counts %v; expected %v", got, want)
	}
	if len(model) > 0 && (q.First() != model[0] || q.Last() != model[len(model)-1] || model[0].Prev() != nil) {
		t.Error("the ends are wrong")
	}
	if len(model) == 0 && (q.First() != nil || q.Last() != nil || q.Border() != nil) {
		t.Error("the queue is not empty")
	}
}

// A hand-over costs the same whether few or many wait.
func BenchmarkHandOver(b *testing.B) {
	for _, waiting := range []int{10, 10_000} {
		b.Run(map[int]string{10: "10", 10_000: "10000"}[waiting], func(b *testing.B) {
			var q Queue[*ticket]
			tickets := make([]ticket, waiting)
			for i := range tickets {
				tickets[i].number, tickets[i].local = i, true
				q.Insert(&tickets[i])
			}
			q.Admit()
			for n := waiting; b.Loop(); n++ {
				first := q.First()
				q.Remove(first)
				q.Admit()
				first.number = n
				q.Insert(first)
			}
		})
	}
}

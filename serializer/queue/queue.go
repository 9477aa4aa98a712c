// Package queue has the tickets of one queue in order, and the rule that determines which
// of them may be inside. Its user inserts and removes the tickets, and admits the callers
// whose tickets [Queue.Admit] returns.
//
// A type becomes an element of a queue by embedding an [Item] and adding the two other
// methods of [Element]:
//
//	type ticket struct {
//		queue.Item[*ticket]
//		number uint64
//		ready  chan struct{} // nil for a ticket of another process
//	}
//
//	func (t *ticket) Before(o *ticket) bool { return t.number < o.number }
//	func (t *ticket) Local() bool           { return t.ready != nil }
//
// So a ticket, its position in the queue and its caller share one allocation.
package queue

import "iter"

// Element is a ticket, as a queue sees it: a pointer to a struct that embeds an [Item].
// The zero value of E, nil, means no ticket.
type Element[E any] interface {
	comparable

	// Before reports whether this ticket comes before another. The order is strict, and
	// does not change while the ticket is in a queue.
	Before(E) bool

	// Local reports whether a caller of this process has the ticket. A remote
	// ticket belongs to another process, or to nobody.
	Local() bool

	item() *Item[E]
}

// Item makes the struct that embeds it an element of a [Queue], but of only one at a
// time.
type Item[E any] struct {
	// Rule is the rule of the ticket. It is set before [Queue.Insert]. Only [Queue.SetLimit]
	// changes it.
	Rule Rule

	// MaxWaiting is how many may wait from this ticket, included, to the end of
	// the queue before the ticket is superseded. Zero means any number. It is set
	// before [Queue.Insert], and only for a local ticket.
	MaxWaiting int

	prev, next E

	admitted bool
}

// Admitted reports whether the ticket is before the border: it may be inside.
func (i *Item[E]) Admitted() bool { return i.admitted }

func (i *Item[E]) item() *Item[E] { return i } //nolint:unused // it makes what embeds an Item an Element

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

// Queue is the tickets of one name in order, and the border between those that
// may be inside and those that wait. The zero value is an empty queue.
//
// The tickets that may be inside are always the first ones, because whether a ticket
// may enter depends only on those before it. So the queue keeps the border and counts
// the tickets before it. A hand-over costs the same whether ten or ten thousand wait.
//
// A Queue is not safe for concurrent use.
type Queue[E Element[E]] struct {
	first, last E
	border      E // the first that is not admitted
	length      int
	local       int
	bounded     int // with a MaxWaiting
	least       int // at most the smallest MaxWaiting, while there is one
	paused      bool

	// Before the border.
	inside      int
	localInside int
	readers     int
	room        int // the narrowest capacity, or 0
}

// Border returns the first ticket that waits, or nil.
func (q *Queue[E]) Border() E { return q.border }

// Len returns the number of all tickets.
func (q *Queue[E]) Len() int { return q.length }

// Waiting returns the number of tickets behind the border.
func (q *Queue[E]) Waiting() int { return q.length - q.inside }

// HasRemote reports whether there are tickets that are not local.
func (q *Queue[E]) HasRemote() bool { return q.local < q.length }

// LocalInside returns the number of tickets of this process before the border.
func (q *Queue[E]) LocalInside() int { return q.localInside }

// LocalWaiting returns the number of tickets of this process behind the border.
func (q *Queue[E]) LocalWaiting() int { return q.local - q.localInside }

// All returns the tickets in order. The loop may remove the ticket that it is at.
func (q *Queue[E]) All() iter.Seq[E] {
	return func(yield func(E) bool) {
		var none E
		for e := q.first; e != none; {
			next := e.item().next
			if !yield(e) {
				return
			}
			e = next
		}
	}
}

// Insert puts a ticket into its position. Tickets nearly always come in order, so it
// searches from the end.
//
// A ticket that belongs before some that are inside was reported late. If none of those
// is local, they only seemed to be the first, and the border goes back to the start.
// Otherwise, nobody is sent out, and the ticket counts as inside.
func (q *Queue[E]) Insert(e E) {
	var behind, none E
	for at := q.last; at != none && e.Before(at); at = at.item().prev {
		behind = at
	}
	e.item().admitted = false
	q.link(e, behind)
	q.length++
	q.local += one(e.Local())
	if most := e.item().MaxWaiting; most > 0 {
		if q.bounded == 0 || most < q.least {
			q.least = most
		}
		q.bounded++
	}
	switch {
	case behind != none && behind.item().admitted && q.localInside == 0:
		q.withdraw()
	case behind != none && behind.item().admitted:
		q.admit(e)
	case behind == q.border:
		q.border = e
	}
}

func (q *Queue[E]) link(e, behind E) {
	var none E
	i := e.item()
	i.next = behind
	if behind == none {
		i.prev, q.last = q.last, e
	} else {
		i.prev, behind.item().prev = behind.item().prev, e
	}
	if i.prev == none {
		q.first = e
	} else {
		i.prev.item().next = e
	}
}

// Remove removes a ticket, which must be in the queue.
func (q *Queue[E]) Remove(e E) {
	var none E
	i := e.item()
	if q.border == e {
		q.border = i.next
	}
	q.length--
	q.local -= one(e.Local())
	q.bounded -= one(i.MaxWaiting > 0)
	if i.prev == none {
		q.first = i.next
	} else {
		i.prev.item().next = i.next
	}
	if i.next == none {
		q.last = i.prev
	} else {
		i.next.item().prev = i.prev
	}
	i.prev, i.next = none, none
	if i.admitted {
		q.countInside(e, -1)
		q.widen(i.Rule.Capacity())
	}
}

// Superseded returns the first local waiter with more than its MaxWaiting waiters from
// itself to the end of the queue, or nil. Waiters before it do not count: they may
// belong to a stopped process, or have no MaxWaiting. The caller refuses the ticket,
// removes it, and calls Superseded again.
func (q *Queue[E]) Superseded() E {
	var none E
	waiting := q.Waiting()
	for e := q.border; e != none && q.bounded > 0 && waiting > q.least; e = e.item().next {
		if most := e.item().MaxWaiting; most > 0 && waiting > most {
			return e
		}
		waiting--
	}
	return none
}

// countInside counts a ticket before the border.
func (q *Queue[E]) countInside(e E, by int) {
	i := e.item()
	q.inside += by
	q.localInside += by * one(e.Local())
	q.readers += by * one(i.Rule.Shared)
}

package serializer

import "iter"

// ticketQueue is the tickets of one name in order, and the border between those that
// may be inside and those that wait.
//
// The tickets that may be inside are always the first ones, because whether a ticket
// may enter depends only on those before it. So the queue keeps the border and counts
// the tickets before it. A hand-over costs the same whether ten or ten thousand wait.
//
// Its engine's lock guards it. Only the methods here and in admission.go change the fields,
// and those of tickets that say where they are in the queue.
type ticketQueue struct {
	name        string
	first, last *Ticket
	border      *Ticket // the first that is not admitted
	length      int
	local       int
	bounded     int // with a mostWaiting
	least       int // at most the smallest mostWaiting, while there is one
	paused      bool
	relimited   bool // some have another Limit than other processes would see

	// Before the border.
	inside      int
	localInside int
	readers     int
	room        int // the narrowest capacity, or 0
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

// waiting returns the number of tickets behind the border.
func (q *ticketQueue) waiting() int { return q.length - q.inside }

// localWaiting returns the number of tickets of this process behind the border.
func (q *ticketQueue) localWaiting() int { return q.local - q.localInside }

// hasRemote reports whether there are tickets that are not local.
func (q *ticketQueue) hasRemote() bool { return q.local < q.length }

// all returns the tickets in order. The loop may remove the ticket that it is at.
func (q *ticketQueue) all() iter.Seq[*Ticket] {
	return func(yield func(*Ticket) bool) {
		for t := q.first; t != nil; {
			next := t.next
			if !yield(t) {
				return
			}
			t = next
		}
	}
}

// insert puts a ticket into its position. Tickets nearly always come in order, so it
// searches from the end.
//
// A ticket that belongs before some that are inside was reported late. If none of those
// is local, they only seemed to be the first, and the border goes back to the start.
// Otherwise, nobody is sent out, and the ticket counts as inside.
func (q *ticketQueue) insert(t *Ticket) {
	if q.relimited && !t.Local() {
		q.takeLimitsBack()
	}
	var behind *Ticket
	for at := q.last; at != nil && t.before(at); at = at.prev {
		behind = at
	}
	t.admitted = false
	q.link(t, behind)
	q.length++
	q.local += one(t.Local())
	if t.mostWaiting > 0 {
		if q.bounded == 0 || t.mostWaiting < q.least {
			q.least = t.mostWaiting
		}
		q.bounded++
	}
	switch {
	case behind != nil && behind.admitted && q.localInside == 0:
		q.withdraw()
	case behind != nil && behind.admitted:
		q.admit(t)
	case behind == q.border:
		q.border = t
	}
}

func (q *ticketQueue) link(t, behind *Ticket) {
	t.next = behind
	if behind == nil {
		t.prev, q.last = q.last, t
	} else {
		t.prev, behind.prev = behind.prev, t
	}
	if t.prev == nil {
		q.first = t
	} else {
		t.prev.next = t
	}
}

// remove removes a ticket, which must be in the queue.
func (q *ticketQueue) remove(t *Ticket) {
	if q.border == t {
		q.border = t.next
	}
	q.length--
	q.local -= one(t.Local())
	q.bounded -= one(t.mostWaiting > 0)
	if t.prev == nil {
		q.first = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		q.last = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.prev, t.next = nil, nil
	if t.admitted {
		q.countInside(t, -1)
		if left := t.Rule.Capacity(); left > 0 && left == q.room { // mostly, the first one has the same
			q.measure(left)
		}
	}
}

// superseded returns the first waiter with more than its mostWaiting waiters from itself
// to the end of the queue, or nil. Waiters before it do not count: they may
// belong to a stopped process, or have no mostWaiting. The caller refuses the ticket, which
// removes it, and calls superseded again.
func (q *ticketQueue) superseded() *Ticket {
	waiting := q.waiting()
	for t := q.border; t != nil && q.bounded > 0 && waiting > q.least; t = t.next {
		if t.mostWaiting > 0 && waiting > t.mostWaiting {
			return t
		}
		waiting--
	}
	return nil
}

// countInside counts a ticket before the border.
func (q *ticketQueue) countInside(t *Ticket, by int) {
	q.inside += by
	q.localInside += by * one(t.Local())
	q.readers += by * one(t.Rule.Shared)
}

package serializer

// Rule determines which other arrivals may be inside together with an arrival. The zero
// value is the strictest: to be alone.
type Rule struct {
	// Shared marks a reader: it may be inside together with other shared
	// arrivals, never with an exclusive one.
	Shared bool

	// Limit is how many arrivals may be inside together with this one, itself included.
	// For exclusive arrivals, zero or less means 1; for shared ones, no limit.
	Limit int
}

// Admits reports whether an arrival may enter behind ahead others in its queue. Of these,
// shared are readers, and room is the narrowest capacity. Arrivals further back never
// matter: a reader behind a waiting writer waits, so no writer starves.
func (r Rule) Admits(ahead, shared, room int) bool {
	room = narrower(r.Capacity(), room)
	if r.Shared {
		shared -= ahead
	}
	return shared == 0 && (room == 0 || ahead < room)
}

// Capacity returns how many arrivals of this rule may be inside together. Zero
// means no limit.
func (r Rule) Capacity() int {
	if r.Shared {
		return max(r.Limit, 0)
	}
	return max(r.Limit, 1)
}

// narrower returns the smaller of two capacities, where 0 means no limit.
func narrower(a, b int) int {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// Alone reports whether an arrival with this rule is always inside alone.
func (r Rule) Alone() bool { return !r.Shared && r.Limit <= 1 }

// AsStrictAs reports whether this rule never admits an arrival beside more than another
// rule would.
func (r Rule) AsStrictAs(o Rule) bool {
	mine := r.Capacity()
	return r.Alone() || r.Shared == o.Shared && narrower(mine, o.Capacity()) == mine
}

// admitNext moves the border past the first waiting ticket, if that may enter now, and
// returns it. Otherwise, it returns nil. It is called until it returns nil, and again
// after each change.
func (q *ticketQueue) admitNext() *Ticket {
	t := q.border
	if t == nil || q.paused || !t.Rule.Admits(q.inside, q.readers, q.room) {
		return nil
	}
	q.pass()
	return t
}

// pass moves the border past the first waiting ticket, whatever its rule: its owner
// says that it is inside. There must be one.
func (q *ticketQueue) pass() {
	t := q.border
	q.border = t.next
	q.admit(t)
}

// setPaused fixes the border, or lets admitNext move it again. When a pause begins
// and no local ticket is inside, remote tickets that are only presumed inside count as
// waiting. Their owners may have learned of the pause earlier.
func (q *ticketQueue) setPaused(paused bool) {
	if paused && !q.paused && q.localInside == 0 {
		q.withdraw()
	}
	q.paused = paused
}

func (q *ticketQueue) admit(t *Ticket) {
	t.admitted = true
	q.countInside(t, 1)
	q.room = narrower(q.room, t.Rule.Capacity())
}

// withdraw moves the border back to the start.
func (q *ticketQueue) withdraw() {
	for t := q.first; t != q.border; t = t.next {
		t.admitted = false
	}
	q.border = q.first
	q.inside, q.readers, q.room = 0, 0, 0
}

// setLimit changes the Limit of some exclusive tickets, if all in the queue are local: other
// processes count by the limit that they have seen. Nobody is sent out; the caller admits those
// who may enter now.
func (q *ticketQueue) setLimit(limit int, of func(Requester) bool) {
	if q.hasRemote() {
		return
	}
	for t := range q.all() {
		if !t.Rule.Shared && of(t.requester) {
			t.Rule.Limit, q.relimited = limit, true
		}
	}
	q.measure(0)
}

// takeLimitsBack gives the tickets the Limit that other processes have seen, since one has come.
func (q *ticketQueue) takeLimitsBack() {
	for t := range q.all() {
		if t.Local() {
			t.Rule.Limit = t.seenLimit
		}
	}
	q.relimited = false
	q.measure(0)
}

// measure finds the narrowest capacity again. It need not look for any narrower than least.
func (q *ticketQueue) measure(least int) {
	q.room = 0
	for t := q.first; t != q.border && (q.room == 0 || q.room != least); t = t.next {
		q.room = narrower(q.room, t.Rule.Capacity())
	}
}

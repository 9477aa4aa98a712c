package serializer

import "time"

// openLocked returns the queue of a given name, for a ticket that joins it.
func (e *Engine) openLocked(name string) *ticketQueue {
	q := e.queues[name]
	if q == nil {
		if q = e.empty; q == nil {
			q = new(ticketQueue)
		} else {
			delete(e.queues, q.name)
		}
		*q = ticketQueue{name: name, paused: !e.pauses.end(name).IsZero()}
		e.queues[name] = q
	}
	if q == e.empty {
		e.empty = nil
	}
	return q
}

// find returns the ticket with a token, or nil; q may be nil.
func (q *ticketQueue) find(token uint64) *Ticket {
	if q == nil {
		return nil
	}
	for t := range q.all() {
		if t.Number == token {
			return t
		}
	}
	return nil
}

// insertLocked puts a ticket into its place, and admits those that may enter.
func (e *Engine) insertLocked(t *Ticket, q *ticketQueue) {
	t.in = q
	q.insert(t)
	e.advanceLocked(q)
}

// takeOutLocked takes a ticket out of its queue, and admits the next ones. It returns the
// last of these that is local, or nil.
func (e *Engine) takeOutLocked(t *Ticket) (granted *Ticket) {
	q := t.in
	t.in = nil
	if t.Local() {
		t.state = over
		if t.inSlot != nil { // the ticket takes that of the slot with it out of the store
			t.slot.used = time.Since(launch)
			e.takeOutLocked(t.inSlot)
		}
	}
	q.remove(t)
	return e.advanceLocked(q)
}

// refuseLocked ends the wait of a local ticket without a turn. The caller's goroutine
// removes it from the store.
func (e *Engine) refuseLocked(t *Ticket, why error) {
	if t.state == over {
		return
	}
	if t.in != nil {
		e.takeOutLocked(t)
	}
	t.state = over
	if t.context != nil {
		t.context.cancel(why) // takeSlot ends
	}
	t.wakeLocked(why)
}

// advanceLocked brings a queue up to date after a change. It admits the tickets that may
// enter, refuses those that are superseded, and forgets the queue once it is empty and
// another one is, too. It returns the last local ticket that it admitted, or nil.
func (e *Engine) advanceLocked(q *ticketQueue) (granted *Ticket) {
	granted = e.admitLocked(q)
	for t := q.superseded(); t != nil; t = q.superseded() {
		e.refuseLocked(t, ErrSuperseded)
	}
	if q.length == 0 && q != e.empty {
		if e.empty != nil {
			delete(e.queues, e.empty.name)
		}
		e.empty = q
	}
	return granted
}

// admitLocked admits all tickets that may enter. In a paused queue, these are the remote
// ones that are inside already.
func (e *Engine) admitLocked(q *ticketQueue) (granted *Ticket) {
	if q.paused {
		for t := q.border; t != nil && !t.Local() && e.store.Inside(t); t = q.border {
			q.pass()
		}
		return nil
	}
	for t := q.admitNext(); t != nil; t = q.admitNext() {
		if t.Local() {
			e.grantLocked(t)
			granted = t
		}
	}
	return granted
}

// SetLimit changes the Limit of the exclusive tickets in a queue that are for requesters of a kind,
// because its program lets more or fewer in from now on. Nobody is sent out. The change lasts for
// as long as the queue has only tickets of this process: others count by the limit that they have
// seen. So with a store of leases it has no effect.
func (e *Engine) SetLimit(queue string, limit int, of func(Requester) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if q := e.queues[queue]; q != nil && e.lease == nil {
		q.setLimit(limit, of)
		e.advanceLocked(q)
	}
}

// takeBack takes the turn back from a holder, or ends the wait of a local ticket without one.
func (e *Engine) takeBack(t *Ticket, cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t.state == inside {
		t.revokeLocked(cause)
	} else {
		e.refuseLocked(t, cause)
	}
}

// grantLocked gives the caller of a local ticket its turn, perhaps once it has a slot.
func (e *Engine) grantLocked(t *Ticket) {
	e.store.SetInside(t, false)
	if t.slots == nil {
		t.enterLocked()
		return
	}
	t.state = seeking
	go e.takeSlot(t)
}

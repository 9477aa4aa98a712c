package serializer

import "time"

// leave hands the turn over and removes the lock file, in this order.
func (d *directory) leave(t *ticket) {
	d.mu.Lock()
	if t.out {
		d.mu.Unlock()
		return
	}
	granted := d.dropLocked(t)
	d.users++
	d.mu.Unlock()

	if granted {
		yield()
		d.removeFinished(t)
		return
	}
	d.removeTicket(t)
	d.release()
}

// settle ends the wait of a ticket that did not end with the turn. It reports whether
// the turn came in the same moment and stands.
func (d *directory) settle(t *ticket, err error) (turn bool) {
	d.mu.Lock()
	switch {
	case t.out:
		superseded := t.refusal == ErrSuperseded && t.linked
		d.mu.Unlock()
		if superseded {
			d.removeTicket(t)
			d.release()
		}
	case !t.linked: // the issuing goroutine takes it back
		t.givenUp = true
		d.mu.Unlock()
	case t.Admitted() && err == ErrTimeout:
		d.mu.Unlock()
		return true
	default:
		d.mu.Unlock()
		d.leave(t)
	}
	return false
}

// dropLocked takes a ticket out of its queue and lets the next in. It reports whether
// that is one of ours.
func (d *directory) dropLocked(t *ticket) (granted bool) {
	if t.out {
		return false
	}
	d.takeOutLocked(t)
	return d.advanceLocked(t.queue)
}

func (d *directory) takeOutLocked(t *ticket) {
	t.out = true
	if t.Local() {
		d.owned--
		if d.owned == 0 {
			d.idleSince = time.Now()
		}
	}
	if t.queue.restsOn(t) {
		d.unrestLocked()
	}
	t.queue.remove(t)
}

// advanceLocked draws the consequences of a change in a queue: it lets in the tickets
// that may enter, refuses those that are superseded, and forgets the queue if it is
// empty. It reports whether it let one of ours in.
func (d *directory) advanceLocked(q *ticketQueue) (granted bool) {
	if !d.retired {
		granted = q.advance(grantLinked)
		for t := q.Superseded(0); t != nil; t = q.Superseded(0) {
			d.supersedeLocked(t)
			granted = q.advance(grantLinked) || granted
		}
	}
	if blocked := q.awaitsEvents(); blocked != q.blocked {
		q.blocked = blocked
		if blocked {
			d.blocked[q] = true
			d.wake()
		} else {
			delete(d.blocked, q)
			q.next, q.awaited = nil, nil
		}
	}
	if q.Len() == 0 {
		delete(d.queues, q.prefix)
	}
	return granted
}

// grantLinked lets a ticket of ours in, unless its file is still being made: then
// linked does.
func grantLinked(t *ticket) {
	if t.linked {
		t.grant()
	}
}

// supersedeLocked refuses a ticket of ours. Its caller removes the file; the directory
// is in use until then.
func (d *directory) supersedeLocked(t *ticket) {
	d.takeOutLocked(t)
	if t.linked { // else the issuing goroutine finds it out
		d.users++
	}
	t.refuse(ErrSuperseded)
}

// dismissLocked refuses a ticket of ours. Its file is left to be removed.
func (d *directory) dismissLocked(t *ticket, why error) {
	if t.out {
		return // superseded, for another was dismissed
	}
	d.dropLocked(t)
	t.refuse(why)
}

// dismissWaitingLocked refuses all of ours that are not inside, and returns them:
// their files are left to be removed. A queue moves on only when all of ours are out of
// it, so that none of them enters because one before it has gone.
func (d *directory) dismissWaitingLocked(why error) (dismissed []*ticket) {
	for _, q := range d.queues {
		for t := range q.All() {
			if t.Local() && !(t.Admitted() && t.linked) {
				d.takeOutLocked(t)
				t.refuse(why)
				dismissed = append(dismissed, t)
			}
		}
		d.advanceLocked(q)
	}
	return dismissed
}

// takeRevokesLocked returns the callbacks of ours that are inside.
func (d *directory) takeRevokesLocked() (revokes []func(error)) {
	for _, q := range d.queues {
		for t := range q.All() {
			if t.Local() {
				revokes = appendRevoke(revokes, t.waiter)
			}
		}
	}
	return revokes
}

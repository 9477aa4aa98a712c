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

// settle ends a wait without a turn. It returns true if the turn came at the same moment
// and counts.
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
	case !t.linked: // the issuing goroutine will remove it
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

// dropLocked takes a ticket out of its queue and admits the next ones. It reports whether
// any of these is local.
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
	t.queue.remove(t)
}

// advanceLocked updates a queue after a change. It admits the tickets that may enter,
// refuses those that are superseded, and forgets the queue if it is empty. It reports
// whether it admitted a local ticket.
func (d *directory) advanceLocked(q *ticketQueue) (granted bool) {
	if !d.retirement.retired {
		granted = q.advance(grantLinked)
		for t := q.Superseded(0); t != nil; t = q.Superseded(0) {
			d.supersedeLocked(t)
			granted = q.advance(grantLinked) || granted
		}
	}
	if blocked := q.awaitsEvents(); blocked != q.blocked {
		q.blocked = blocked
		if blocked {
			d.blocked++
			d.wake()
		} else {
			d.blocked--
		}
	}
	d.queues.closeIfEmpty(q)
	return granted
}

// grantLinked admits a local ticket. If its file is still being made, noteMade does so
// later.
func grantLinked(t *ticket) {
	if t.linked {
		t.grant()
	}
}

// supersedeLocked refuses a local ticket. The ticket's caller removes the file. Until
// then, the directory is in use.
func (d *directory) supersedeLocked(t *ticket) {
	d.takeOutLocked(t)
	if t.linked { // otherwise, the issuing goroutine will notice
		d.users++
	}
	t.refuse(ErrSuperseded)
}

// dismissLocked refuses a local ticket. The caller must remove its file.
func (d *directory) dismissLocked(t *ticket, why error) {
	if t.out {
		return // superseded, because another ticket was dismissed
	}
	d.dropLocked(t)
	t.refuse(why)
}

// dismissWaitingLocked refuses and returns all local tickets that are not inside. The
// caller must remove their files. A queue advances only when all of them are out. So none
// of them enters because the one before it has gone.
func (d *directory) dismissWaitingLocked(why error) (dismissed []*ticket) {
	for _, q := range d.queues.byName {
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

// takeRevokesLocked returns the callbacks that revoke the turns of local holders.
func (d *directory) takeRevokesLocked() (revokes []func(error)) {
	for _, q := range d.queues.byName {
		for t := range q.All() {
			if t.Local() {
				revokes = appendRevoke(revokes, t.waiter)
			}
		}
	}
	return revokes
}

package serializer

import (
	"path/filepath"
	"slices"
	"time"
)

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
		d.mu.Unlock()
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
	t.out = true
	if t.Local() {
		d.owned--
		if d.owned == 0 {
			d.idleSince = time.Now()
		}
	}
	t.queue.remove(t)
	return d.advanceLocked(t.queue)
}

// advanceLocked draws the consequences of a change in a queue: it lets in the tickets
// that may enter, and forgets the queue if it is empty. It reports whether it let one
// of ours in.
func (d *directory) advanceLocked(q *ticketQueue) (granted bool) {
	if !d.retired {
		granted = q.advance(grantLinked)
	}
	if blocked := q.blockedByRemote(); blocked != q.blocked {
		q.blocked = blocked
		if blocked {
			d.blocked++
			d.wake()
		} else {
			d.blocked--
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

// dismissLocked refuses a ticket of ours. Its file is left to be removed.
func (d *directory) dismissLocked(t *ticket, why error) {
	d.dropLocked(t)
	t.refuse(why)
}

// dismissWaitingLocked refuses all of ours that are not inside, and returns them:
// their files are left to be removed.
func (d *directory) dismissWaitingLocked(why error) (dismissed []*ticket) {
	for _, q := range d.queues {
		for t := range q.All() {
			if t.Local() && !(t.Admitted() && t.linked) {
				d.dismissLocked(t, why)
				dismissed = append(dismissed, t)
			}
		}
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

// removeTicket removes the file of a ticket of ours that is over.
func (d *directory) removeTicket(t *ticket) { d.removed(t.name, d.sys.leave(t.name, t.Stamp)) }

func (d *directory) removeTickets(tickets []*ticket) {
	for _, t := range tickets {
		d.removeTicket(t)
	}
}

// removeFile removes any other file.
func (d *directory) removeFile(name string) { d.removed(name, d.sys.remove(name)) }

// removed sees to it that the monitor tries again if a file could not be removed,
// for others wait for it.
func (d *directory) removed(name string, err error) {
	if err == nil {
		return
	}
	d.log.Error("a lock file could not be removed; trying again", "path", filepath.Join(d.path, name), "error", err)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.leftovers = append(d.leftovers, name)
}

// clearLeftovers tries again to remove files that could not be removed.
func (d *directory) clearLeftovers() {
	d.mu.Lock()
	names := d.leftovers
	d.leftovers = nil
	d.mu.Unlock()
	for i, name := range names {
		if d.sys.remove(name) == nil {
			continue
		}
		d.mu.Lock()
		d.leftovers = slices.Concat(d.leftovers, names[i:])
		d.mu.Unlock()
		return
	}
}

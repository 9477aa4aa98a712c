package serializer

import "time"

// Each ticket that comes or goes changes the directory. A process that waits for one
// ticket needs to hear of that one only, and with many processes the other changes cost it
// more than its own work. So the process asks the owner of that ticket to wake it, and
// rests. It asks by writing the ticket's number into its own ledger. The owner strikes the
// ticket out when it is over, reads who has asked, wakes that process, and then removes the
// lock file. The process reads in the ledger that the ticket is over, and admits its own.
//
// No turn depends on a wake-up: it only makes a process look sooner. The ledger says
// whether a ticket is over, and the ledger is part of the lock file. Its owner strikes a
// ticket out only after the turn has ended, whatever happens to the owner then. A resting
// process still hears of owners that end and of files that other programs make. It also
// syncs ten times a second, and with each ticket that it issues.
//
// No wake-up is missed. The process first asks and then reads whether the ticket is struck
// out; the owner first strikes it out and then reads who has asked.
//
// A process listens to the whole directory where a wake-up is not enough: for owners of
// older versions, for unowned files, for rules that admit several, for paused queues and
// superseding, and where more queues wait than it can ask for.

// If turns last only microseconds, a process that listens is never asleep when its turn
// comes. That is faster than resting.
const (
	briskTime  = 30 * time.Microsecond // a shorter rest was not worth it
	briskWaits = 15                    // number of waits without a rest after that
)

// rest waits until another process wakes this one, and takes out the tickets that are over.
// It returns false if no process would wake this one, or if resting is not worth it.
func (d *directory) rest(timeout time.Duration) bool {
	if d.brisk > 0 {
		d.brisk--
		return false
	}
	ready, over := d.askToBeWoken()
	worth := ready
	if ready && !over {
		start := time.Now()
		d.sys.rest(timeout)
		over = d.endRest()
		worth = !over || time.Since(start) >= briskTime
	}
	if !worth {
		d.brisk = briskWaits
	}
	if over {
		yield()
	}
	return ready
}

func (d *directory) askToBeWoken() (ready, over bool) {
	d.syncing.Lock()
	defer d.syncing.Unlock()
	return d.syncer.ask()
}

func (d *directory) endRest() (over bool) {
	d.syncing.Lock()
	defer d.syncing.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.resting = false
	return d.syncer.takeOverLocked()
}

// unrestLocked wakes the monitor, because it has asked for the wrong tickets by now.
func (d *directory) unrestLocked() {
	if d.resting {
		d.resting = false
		d.sys.interrupt()
	}
}

// ask asks to be woken for the tickets right before local ones. ready means that the
// monitor may rest, and over that some of these tickets were over already.
func (s *syncer) ask() (ready, over bool) {
	stamps, unknown, ready := s.nextAwaited()
	if ready && unknown != nil {
		s.identifyTickets(unknown)
		stamps, unknown, ready = s.nextAwaited()
	}
	ready = ready && unknown == nil && s.sys.askFor(stamps)
	s.mu.Lock()
	defer s.mu.Unlock()
	undisturbed := s.resting
	s.resting = false
	over = ready && s.takeOverLocked()
	s.resting = undisturbed && ready && !over
	return ready, over
}

// nextAwaited finds, for each blocked queue, the remote ticket right before the first local
// one that waits behind a remote one. From here on, a change of these interrupts the rest.
// unknown are those that may be unowned files: the ledgers cannot speak for them.
func (s *syncer) nextAwaited() (stamps []uint64, unknown []*ticket, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resting = true
	if len(s.blocked) > maxAsked {
		return nil, nil, false
	}
	for q := range s.blocked {
		q.next, q.awaited = q.firstBehindRemote(), nil
		switch {
		case q.Paused() || q.special > 0:
			return nil, nil, false
		case q.next == nil:
			continue
		}
		t := q.next.Prev()
		if !t.known {
			unknown = append(unknown, t)
			continue
		}
		if q.ledger = s.ledgerOf(t); q.ledger == nil {
			return nil, nil, false
		}
		q.awaited = t
		stamps = append(stamps, t.Stamp)
	}
	return stamps, unknown, true
}

// takeOverLocked takes out the awaited tickets that are over, as the ledgers say in which
// they stood. The lock files are left to their owners.
func (s *syncer) takeOverLocked() (over bool) {
	for q := range s.blocked {
		if t := q.awaited; t != nil && !t.out && q.ledger.standing(t.Stamp) == isOver {
			s.dropLocked(t) // it stays in s.tickets until its file is gone
			over = true
		}
	}
	return over
}

// ledgerOf returns the ledger in which a remote ticket stands, if its owner wakes whoever
// asks for it, or nil. A number alone does not say whose it is: it may have been issued
// twice, after somebody put a smaller one into the guard file. So the ledger must be that
// of the ticket's own process, and the ticket must stand in no other one.
func (s *syncer) ledgerOf(t *ticket) (ledger *remoteOwner) {
	for _, o := range s.ledgers {
		switch is := o.standing(t.Stamp); {
		case is == isUnclear, is == isOut && ledger != nil:
			return nil
		case is == isOut:
			ledger = o
		}
	}
	if ledger == nil || !ledger.wakes() || ledger.owner().String() != t.owner {
		return nil
	}
	return ledger
}

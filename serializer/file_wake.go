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
	_, over = d.syncer.takeOverLocked()
	return over
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
	if ready {
		ready, over = s.takeOverLocked()
	}
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
		q.awaited = q.next.Prev()
		if !q.awaited.known {
			unknown = append(unknown, q.awaited)
		}
		stamps = append(stamps, q.awaited.Stamp)
	}
	return stamps, unknown, true
}

// takeOverLocked takes out the awaited tickets that are over. ready means that the owners
// of all others will wake this process, and over that there were any. The lock files are
// left to their owners.
func (s *syncer) takeOverLocked() (ready, over bool) {
	ready = true
	for q := range s.blocked {
		t := q.awaited
		if t == nil || t.out {
			continue
		}
		switch is, wakes := s.ledgerSays(t.Stamp); {
		case is == isOver:
			s.dropLocked(t) // it stays in s.tickets until its file is gone
			over = true
		case is != isOut || !wakes:
			ready = false
		}
	}
	return ready, over
}

// ledgerSays looks a remote ticket up in the ledgers. wakes means that its owner wakes
// whoever asks for it.
func (s *syncer) ledgerSays(stamp uint64) (is standing, wakes bool) {
	for i, o := range s.ledgers {
		if is = o.standing(stamp); is != isAbsent {
			s.ledgers[0], s.ledgers[i] = o, s.ledgers[0] // likely to be asked next, too
			return is, o.wakes()
		}
	}
	return isAbsent, false
}

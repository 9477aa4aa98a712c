package serializer

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"runtime"
	"slices"
	"time"
)

// batchSize bounds how many tickets are issued at once, and so how long the first of them
// waits and the guard is held.
const batchSize = 64

// issue issues tickets until no arrival asks for one.
func (f *File) issue() {
	var batch []*ticket
	for {
		// Let callers that are about to arrive do so: sharing the guard is cheaper, and
		// if there are none, this costs nothing.
		runtime.Gosched()
		batch = f.nextBatch(batch)
		if batch == nil {
			return
		}
		err := f.issueBatch(batch)
		for errors.Is(err, errReplaced) || errors.Is(err, errUnaccounted) && f.pauseFor(batch, err) {
			err = f.issueBatch(batch)
		}
		if err != nil {
			f.refuse(batch, err)
		}
	}
}

// pauseFor waits for a moment before a batch asks for tickets again. It reports whether
// any arrival of the batch still wants one.
func (f *File) pauseFor(batch []*ticket, why error) bool {
	f.logRepeated(slog.LevelWarn, "no tickets are issued at the moment", "error", why)
	time.Sleep(retryInterval)
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.closed && slices.ContainsFunc(batch, func(t *ticket) bool { return !t.givenUp && !t.out })
}

// retryInterval is the time between attempts to issue tickets while a lock file is
// missing.
const retryInterval = 2 * time.Millisecond

// nextBatch returns the arrivals that ask for a ticket now, in order of arrival, or nil.
// The memory of the batch done is reused.
func (f *File) nextBatch(done []*ticket) []*ticket {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(done)
	if len(f.arrivals) == 0 {
		f.issuing = false
		f.arrivals = done[:0]
		return nil
	}
	if len(f.arrivals) <= batchSize {
		batch := f.arrivals
		f.arrivals = done[:0]
		return batch
	}
	batch := f.arrivals[:batchSize:batchSize]
	f.arrivals = f.arrivals[batchSize:]
	return batch
}

func (f *File) refuse(batch []*ticket, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range batch {
		if t.dir == nil && !t.out && !t.givenUp {
			t.refuse(err)
		}
	}
}

// issueBatch issues tickets to a batch, under the guard.
func (f *File) issueBatch(batch []*ticket) error {
	d, err := f.acquire()
	if err != nil {
		return err
	}
	checked := time.Now()
	defer d.release()
	defer d.sys.unlock()
	if err := d.sync(true); err != nil {
		return err
	}
	last, err := d.lastStamp(batch, f.lastStamp())
	if err != nil {
		return err
	}
	if last, err = d.numbers.afterStart(last); err != nil {
		return err
	}
	d.identifyFor(batch)
	joined, last, err := f.join(d, batch, last)
	if err != nil || len(joined) == 0 {
		return err
	}
	// Recorded first: an unused number does no harm.
	if err := d.record(last); err != nil {
		d.dismiss(joined, err)
		return nil
	}
	if d.createAll(joined, checked) != nil {
		f.retire(d)
	}
	return nil
}

// acquire takes the guard of the current directory.
func (f *File) acquire() (*directory, error) {
	for {
		d, err := f.awake()
		if err != nil {
			return nil, err
		}
		if err = d.sys.lock(); err == nil {
			if err = d.sys.check(); err == nil {
				return d, nil
			}
			d.sys.unlock()
		}
		if errors.Is(err, errReplaced) {
			f.retire(d)
		}
		d.release()
		if !errors.Is(err, errReplaced) {
			return nil, err
		}
	}
}

// awake returns the open directory, for use until release. Only the issuing goroutine
// opens it.
func (f *File) awake() (*directory, error) {
	if d := f.current(); d != nil {
		return d, nil
	}
	sys, err := f.openNext()
	if err != nil {
		return nil, err
	}
	d := newDirectory(f, sys, &f.fileSettings, f.unowned)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dir = d
	d.closing = f.closed
	d.use()
	go d.monitor()
	return d, nil
}

// lastStamp returns the greatest number known to have been issued in any directory.
func (f *File) lastStamp() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// join puts a batch of arrivals into their queues. It returns those that got a number, in
// the memory of the batch, and the last number. From then on, they belong to the
// directory.
func (f *File) join(d *directory, batch []*ticket, last uint64) ([]*ticket, uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	joined, last, err := d.join(batch, last)
	f.last = max(f.last, last)
	return joined, last, err
}

// lastStamp returns the greatest number ever issued: a batch's tickets are numbered from
// there. The caller holds the guard, has synced, and knows that numbers up to last were
// issued.
func (d *directory) lastStamp(batch []*ticket, last uint64) (uint64, error) {
	d.mu.Lock()
	others := d.others
	d.mu.Unlock()
	if !others && d.sys.notifies() {
		return last, nil
	}
	recorded, err := d.sys.last()
	if err != nil {
		return 0, err
	}
	if recorded >= minStamp && recorded < maxStamp {
		return d.raise(batch, max(last, recorded)), nil
	}
	return max(last, d.greatest()), nil
}

func (d *directory) greatest() (stamp uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.tickets {
		stamp = max(stamp, t.Stamp)
	}
	return stamp
}

// raise returns last. It returns more if somebody has written a number to the guard file
// that is smaller than those of tickets in the batch's queues. A new ticket would be
// admitted before these. Unowned files do not count, whatever their numbers are.
func (d *directory) raise(batch []*ticket, last uint64) uint64 {
	later := d.later(batch, last)
	if later == nil {
		return last
	}
	d.syncing.Lock()
	defer d.syncing.Unlock()
	for _, t := range later {
		if !t.Local() && !t.known {
			d.syncer.identify(t)
		}
		if t.Local() || t.known {
			last = max(last, t.Stamp)
		}
	}
	return last
}

// later lists the tickets in the batch's queues with numbers greater than last.
func (d *directory) later(batch []*ticket, last uint64) (tickets []*ticket) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range batch {
		q := d.queues.byName[t.Prefix]
		if q == nil {
			continue
		}
		for t := q.Last(); t != nil && t.Stamp > last; t = t.Prev() {
			tickets = append(tickets, t)
		}
	}
	return tickets
}

// join is part of [File.join], which holds the engine's lock: until now, the tickets have
// belonged to that lock.
func (d *directory) join(batch []*ticket, last uint64) ([]*ticket, uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closing: // everybody who had joined was refused
		return nil, last, &StorageError{"entering lock directory", d.path, ErrClosed}
	case d.retirement.retired:
		return nil, last, errReplaced
	}
	joined := batch[:0]
	for _, t := range batch {
		if t.givenUp || t.out {
			continue
		}
		q := d.queues.open(t.Prefix)
		d.queues.noteGroup(q, t.group)
		if err := d.joinLocked(q, t, last); err != nil {
			t.refuse(err)
		} else {
			last = t.Stamp
			joined = append(joined, t)
		}
		d.advanceLocked(q)
	}
	joined = slices.DeleteFunc(joined, func(t *ticket) bool { return t.out }) // superseded by a later one
	return joined, last, nil
}

// joinLocked gives an arrival its number and its place in the queue, or returns why it
// gets none.
func (d *directory) joinLocked(q *ticketQueue, t *ticket, last uint64) error {
	t.position = q.Len()
	if t.max > 0 && q.Waiting() >= t.max {
		return ErrFull
	}
	if !d.numberLocked(t, last) {
		t.Stamp = 0
		return &StorageError{"numbering tickets in", d.path,
			fmt.Errorf("the clock or the last number, %d, is beyond the year 2286", last)}
	}
	t.dir = d
	t.seen = d.listings
	d.tickets[t.name] = t
	d.owned++
	q.insert(t)
	return nil
}

// numberLocked gives an arrival its number and name. It returns false if there are no
// numbers left. The loop skips names that unowned files already have.
func (d *directory) numberLocked(t *ticket, last uint64) bool {
	for stamp := nextStamp(d.clock(), last); stamp <= maxStamp; stamp++ {
		t.Stamp = stamp
		t.name = t.Name()
		if d.tickets[t.name] == nil {
			return true
		}
	}
	return false
}

// record reserves and records the last number that is being issued.
func (d *directory) record(last uint64) error {
	next, err := d.numbers.reserve(last)
	if err != nil {
		return err
	}
	if next > 0 {
		d.confirmLater(next)
	}
	err = d.sys.setLast(last)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.others = err != nil
	return err
}

// recheckTime is how long after a check of the guard a ticket may be made.
const recheckTime = time.Millisecond

// createAll makes the files of tickets. checked is when the guard was known to be the one
// at its path. After that, this process may be stopped, and the guard replaced. A process
// that holds the new guard has then seen the directory without these tickets. So they are
// refused, and the error is errReplaced.
func (d *directory) createAll(joined []*ticket, checked time.Time) (replaced error) {
	var err error
	d.removals.changing.Lock()
	for _, t := range joined {
		err = replaced
		if err == nil {
			err = d.sys.create(t.name, t.Stamp, t.kind())
		}
		made := err == nil
		if made && time.Since(checked) > recheckTime {
			err, checked = d.sys.check(), time.Now()
		}
		if err == errReplaced {
			replaced = err
			err = &StorageError{"making lock file in", d.path, errReplaced}
		}
		d.noteMade(t, made, err)
	}
	d.removals.changing.Unlock()
	if err != nil { // the last number has no file that shows the others that it was issued
		d.sys.announce()
	}
	d.removeLeft()
	return replaced
}

// noteMade notes whether the file of a ticket was made, and why the ticket is refused. A
// file that was not made is not removed: it may be another program's.
func (d *directory) noteMade(t *ticket, made bool, err error) {
	d.mu.Lock()
	switch {
	case !made:
		d.dismissLocked(t, err)
		d.forgetUnmadeLocked(t, errors.Is(err, fs.ErrExist))
	case err != nil, t.out: // refused now, or in the meantime
		d.dismissLocked(t, err)
		d.mu.Unlock()
		d.removeTicket(t)
		return
	case t.givenUp:
		t.linked = true
		d.mu.Unlock()
		d.leave(t)
		return
	default:
		t.linked = true
		t.seen = d.listings
		if t.Admitted() {
			t.grant()
		}
	}
	d.mu.Unlock()
}

// forgetUnmadeLocked forgets a ticket whose file was not made. If another program has taken
// the file's name, arrivals wait for that file, unless an event said that it is gone.
func (d *directory) forgetUnmadeLocked(t *ticket, taken bool) {
	if d.tickets[t.name] != t {
		return
	}
	delete(d.tickets, t.name)
	if taken {
		d.noteTicketLocked(t.name)
	}
}

// dismiss refuses tickets whose files were not made.
func (d *directory) dismiss(joined []*ticket, err error) {
	for _, t := range joined {
		d.noteMade(t, false, err)
	}
}

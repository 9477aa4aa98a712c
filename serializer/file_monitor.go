package serializer

import (
	"errors"
	"io/fs"
	"path/filepath"
	"time"
)

const (
	// tickInterval is how often the engine checks what no event reports: that other
	// owners are alive, and that the directory is still the same.
	tickInterval = 100 * time.Millisecond

	// lingerTime is how long the directory stays open after the last turn.
	lingerTime = 5 * time.Second

	// unknownPerTick bounds how many tickets are identified in one tick.
	unknownPerTick = 64

	// If an owner has closed its file and still holds its lock, it is probed again this
	// often, at this interval.
	deathRetries = 20
	deathPause   = 100 * time.Microsecond
)

// monitor syncs and checks the directory while it is open, and shuts it in the end.
func (d *directory) monitor() {
	defer close(d.done)
	next := time.Now().Add(d.tickTime)
	for !d.owner.mayShut(d) {
		d.await(time.Until(next))
		d.part()
		d.syncQuietly()
		if time.Now().Before(next) {
			continue
		}
		d.tick()
		next = time.Now().Add(d.tickTime)
	}
	d.reapBeforeShut()
	d.shut()
}

// await waits for something to do: for a change in the directory if a local ticket waits
// for another process, and otherwise for a nudge.
func (d *directory) await(timeout time.Duration) {
	if timeout <= 0 {
		return
	}
	if d.waitsForRemote() {
		// Not longer: an event that another sync consumes does not end the wait.
		d.sys.wait(min(timeout, tickInterval))
		return
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-d.nudge:
	case <-timer.C:
	}
}

func (d *directory) waitsForRemote() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.blocked > 0 && !d.retired
}

// syncQuietly syncs, and only logs errors. Arrivals that need a ticket report them.
// Waiters keep waiting, because nothing is known to be over.
func (d *directory) syncQuietly() {
	d.syncing.Lock()
	defer d.syncing.Unlock()
	if d.isRetired() {
		return
	}
	if err := d.syncer.sync(false); err != nil {
		d.syncer.complainAbout("", err)
	}
}

// reapBeforeShut reaps dead owners while this process is still in the directory: the next
// one may come much later.
func (d *directory) reapBeforeShut() {
	if d.isRetired() {
		return
	}
	d.syncing.Lock()
	defer d.syncing.Unlock()
	if err := d.syncer.sync(false); err != nil {
		d.syncer.complainAbout("", err)
		return
	}
	d.syncer.reapDead()
	d.syncer.removeStaleMarkers(true)
}

// tick checks what no event reports.
func (d *directory) tick() {
	if !d.isRetired() && d.sys.check() == errReplaced {
		d.owner.retire(d)
	}
	d.syncing.Lock()
	defer d.syncing.Unlock()
	s := &d.syncer
	s.sys.widen()
	s.openBarredOwners()
	s.reapDead()
	if d.isRetired() {
		return
	}
	s.identifyTickets(d.firstUnknown())
	d.refuseBarred()
	s.endPauses()
	s.settleAllMissing()
	s.abandonUnowned()
	s.removeStaleMarkers(false)
	d.clearLeftovers()
	s.refresh()
}

// firstUnknown lists the tickets without a known owner that are ahead of all local ones,
// in queues in which a local ticket waits.
func (d *directory) firstUnknown() (tickets []*ticket) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, q := range d.queues {
		if !q.blocked {
			continue
		}
		for t := q.First(); t != nil && !t.Local() && len(tickets) < unknownPerTick; t = t.Next() {
			if !t.known {
				tickets = append(tickets, t)
			}
		}
	}
	return tickets
}

// refreshTime is how often the permanent files are touched, so that programs that clean
// up old files leave them alone.
const refreshTime = time.Minute

func (s *syncer) refresh() {
	if time.Since(s.refreshed) < refreshTime {
		return
	}
	s.refreshed = time.Now()
	s.sys.refresh()
}

// part gives up a replaced directory once it has no local tickets, and checks under its
// guard whether all other processes have left it. Once another directory is open in its
// place, nobody issues tickets in this one any more: processes look for the guard at its
// path.
func (d *directory) part() {
	orders, deserted := d.deserted()
	if !deserted || d.looked > orders && !d.syncer.seemsLeft() {
		return
	}
	d.sys.disown()
	last, left, err := d.lastSync()
	if err == nil {
		d.looked = orders + 1
	}
	if err == nil && last < maxStamp {
		d.owner.parted(last)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.notPartedLocked(err)
	if orders == d.orders { // otherwise, it is outdated
		d.parted = err == nil && (left || !d.succeeded && d.sys.here())
	}
}

// seemsLeft reports whether all known owners have left a replaced directory, or the
// directory is back. Other processes need its guard to leave it. So until then, this
// process does not take it again.
func (s *syncer) seemsLeft() bool { return len(s.owners) == 0 || s.sys.here() }

// notPartedLocked notes why a replaced directory cannot be given up; nil means that it
// can.
func (d *directory) notPartedLocked(err error) {
	switch {
	case err == nil:
		d.unparted = nil
	case d.unparted == nil:
		d.unparted = &barred{since: time.Now(), err: err}
	default:
		d.unparted.err = err
	}
}

// unpartedTime is how long it must have been impossible to give up a replaced directory.
// It is far longer than the engine needs to find out which files are barred.
const unpartedTime = 5 * barredTime

// inTheWay returns why nobody can tell whether a replaced directory is left, once that
// has lasted. Arrivals that wait for it are then refused.
func (d *directory) inTheWay() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.unparted == nil || time.Since(d.unparted.since) < unpartedTime {
		return nil
	}
	return d.unparted.err
}

// deserted reports whether only other processes may still use a replaced directory.
func (d *directory) deserted() (orders int, deserted bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.orders, d.retired && !d.parted && !d.busyLocked()
}

// lastSync syncs a replaced directory under its guard. It returns the last number that
// was issued there, and whether no other process works there any more. After an error,
// the monitor tries again.
func (d *directory) lastSync() (last uint64, left bool, err error) {
	err = d.sys.lock()
	d.syncing.Lock()
	defer d.syncing.Unlock()
	if err == nil {
		defer d.sys.unlock()
		last, err = d.syncer.syncReplaced()
	}
	if err != nil {
		d.syncer.complainAbout("", err)
		return 0, false, err
	}
	d.syncer.reapDead()
	return last, len(d.syncer.owners) == 0, nil
}

var errUnread = errors.New("it cannot be read yet")

// syncReplaced is the part of lastSync under the guard. If the directory was deleted,
// there is nothing to sync.
func (s *syncer) syncReplaced() (last uint64, err error) {
	if last, err = s.sys.last(); err != nil {
		return 0, err
	}
	if err := s.sync(true); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	if s.found.owners != nil {
		return 0, &StorageError{"reading owner file", filepath.Join(s.path, s.found.owners[0]), errUnread}
	}
	return last, s.barredTicket()
}

// shut frees what the directory holds.
func (d *directory) shut() {
	for _, o := range d.syncer.owners {
		o.close()
	}
	d.sys.close()
	d.owner.shut(d)
}

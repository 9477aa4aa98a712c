package serializer

import (
	"errors"
	"io/fs"
	"path/filepath"
	"time"
)

const (
	// tickInterval is how often the engine makes sure of what nobody would
	// tell it: that other owners live, and that the directory is the same.
	tickInterval = 100 * time.Millisecond

	// lingerTime is how long the directory stays open after the last turn.
	lingerTime = 5 * time.Second

	// unknownPerTick bounds how many tickets are identified in one tick.
	unknownPerTick = 64

	// How often, and how soon, an owner is probed again that has closed its
	// file and still holds its lock.
	deathRetries = 20
	deathPause   = 100 * time.Microsecond
)

// monitor watches over the directory while it is open.
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

// await waits for something to do: for a change in the directory if one of ours waits
// for another process, else for a nudge.
func (d *directory) await(timeout time.Duration) {
	if timeout <= 0 {
		return
	}
	if d.waitsForRemote() {
		// Never for longer: an event that another sync takes in does not end the wait.
		timeout = min(timeout, tickInterval)
		if !d.rest(timeout) {
			d.sys.wait(timeout)
		}
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
	return len(d.blocked) > 0 && !d.retired
}

// syncQuietly syncs, and only logs errors. They show in the requests that need a
// ticket; waiters go on waiting, for nothing is known to be over.
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

// reapBeforeShut reaps the dead while we are still there: the next process may come a
// long time from now.
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

// tick makes sure of what nobody tells.
func (d *directory) tick() {
	if !d.isRetired() && d.sys.check() == errReplaced {
		d.owner.retire(d)
	}
	d.syncing.Lock()
	defer d.syncing.Unlock()
	s := &d.syncer
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

// firstUnknown lists the tickets before any of ours, in queues in which one of ours
// waits, as far as we do not know whose they are.
func (d *directory) firstUnknown() (tickets []*ticket) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for q := range d.blocked {
		for t := q.First(); t != nil && !t.Local() && len(tickets) < unknownPerTick; t = t.Next() {
			if !t.known {
				tickets = append(tickets, t)
			}
		}
	}
	return tickets
}

// refreshTime is how often the files that stay are made to look new: less than any
// program that cleans up takes for old.
const refreshTime = time.Minute

func (s *syncer) refresh() {
	if time.Since(s.refreshed) < refreshTime {
		return
	}
	s.refreshed = time.Now()
	s.sys.refresh()
}

// part gives up a replaced directory once none of our tickets is in it, and finds out
// under its guard whether all others have left it. Once another directory is open in its
// place, nobody gives out tickets in this one any more: they look for the guard at its
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
	if orders == d.orders { // else it is too old
		d.parted = err == nil && (left || !d.succeeded && d.sys.here())
	}
}

// seemsLeft reports whether all whom we met in a replaced directory have left it, or it is
// back. Others need its guard to leave it, so without that it is not taken again.
func (s *syncer) seemsLeft() bool { return len(s.owners) == 0 || s.sys.here() }

// notPartedLocked notes why a replaced directory cannot be given up, or nil.
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

// unpartedTime is how long a replaced directory must have been impossible to give up: far
// longer than the engine needs to find out which of its files are barred.
const unpartedTime = 5 * barredTime

// inTheWay returns why nobody can tell whether a replaced directory is left, once that has
// lasted. Those who wait for that are refused.
func (d *directory) inTheWay() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.unparted == nil || time.Since(d.unparted.since) < unpartedTime {
		return nil
	}
	return d.unparted.err
}

// deserted reports whether a replaced directory is used no more but, perhaps, by others.
func (d *directory) deserted() (orders int, deserted bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.orders, d.retired && !d.parted && !d.busyLocked()
}

// lastSync syncs a replaced directory under its guard. It returns the last number
// that was given out in it, and whether nobody works in it any more. After an error, the
// monitor tries again.
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

// syncReplaced is lastSync under the guard. There is nothing to sync in a directory
// that was deleted.
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

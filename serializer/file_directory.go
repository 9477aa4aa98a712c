package serializer

import (
	"sync"
	"sync/atomic"
	"time"
)

// directory is a lock directory in which the engine works: from the first arrival until
// some time after the last one, or until the directory is replaced.
type directory struct {
	*fileSettings
	sys     lockDir
	owner   directoryOwner
	unowned *unownedFiles
	nudge   chan struct{} // wakes the monitor
	done    chan struct{} // closed when the monitor has ended

	removals removals
	pausing  pausing // guarded by mu

	mu        sync.Mutex // guards what follows, and the tickets
	queues    map[string]*ticketQueue
	tickets   map[string]*ticket // by name; a local ticket stays until an event says that its file is gone
	owned     int                // local tickets
	users     int                // calls in progress that need sys
	blocked   int                // queues in which a local ticket waits for another process
	leftovers map[string]bool    // files that could not be removed; true for local tickets
	others    bool               // another process has issued a ticket since this one recorded the last number
	listings  uint64             // number of times the directory was listed
	retired   bool
	parted    bool    // retired, and when last checked, left by all processes or back at its path
	unparted  *barred // why parted cannot be determined
	succeeded bool    // another directory was opened in its place; parted was determined after that
	orders    int     // number of times succeeded was set
	closing   bool    // the engine is closing
	idleSince time.Time

	syncing sync.Mutex // guards the syncer
	syncer  syncer

	looked     int           // orders+1 at the last check for remaining processes; used by the monitor
	started    bool          // a restart of the machine has been taken into account; used by the issuing goroutine
	reserved   atomic.Uint64 // numbers up to this one may be issued
	confirming atomic.Bool   // a goroutine is waiting for the disk
}

// directoryOwner is the engine that a directory reports to. Its methods are called
// without holding a lock of the directory.
type directoryOwner interface {
	// retire stops using a directory that was replaced.
	retire(*directory)

	// parted reports the last number that was issued in a replaced directory.
	parted(last uint64)

	// mayShut reports whether a directory is no longer needed. If so, the engine stops
	// using it.
	mayShut(*directory) bool

	// shut reports that a directory is shut.
	shut(*directory)
}

func newDirectory(owner directoryOwner, sys lockDir, settings *fileSettings, unowned *unownedFiles) *directory {
	d := &directory{
		fileSettings: settings,
		sys:          sys,
		owner:        owner,
		unowned:      unowned,
		nudge:        make(chan struct{}, 1),
		done:         make(chan struct{}),
		queues:       make(map[string]*ticketQueue),
		tickets:      make(map[string]*ticket),
		leftovers:    make(map[string]bool),
		pausing:      newPausing(),
		others:       true,
		idleSince:    time.Now(),
	}
	d.syncer = newSyncer(d)
	return d
}

// wake makes the monitor check the directory.
func (d *directory) wake() {
	select {
	case d.nudge <- struct{}{}:
	default:
	}
}

// hurry makes the monitor check the directory even while it waits for a change. Another
// sync may already have consumed that change.
func (d *directory) hurry() {
	d.wake()
	d.sys.interrupt()
}

// use keeps the directory open until release.
func (d *directory) use() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.users++
}

func (d *directory) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.users--
	if !d.busyLocked() && (d.closing || d.retired) { // nothing keeps it open
		d.hurry()
	}
}

func (d *directory) busyLocked() bool { return d.owned > 0 || d.users > 0 }

// idle reports whether the directory may be shut. A replaced directory stays open until
// all its turns are over, including those of other processes, and another directory is
// open. Until then, it may return to its path, other processes may continue in it, and a
// third directory may take its place.
func (d *directory) idle() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.busyLocked():
		return false
	case d.closing:
		return true
	case d.retired:
		return d.parted && (d.succeeded || time.Since(d.idleSince) >= lingerTime)
	}
	return !d.owesRemovalLocked() && time.Since(d.idleSince) >= lingerTime
}

func (d *directory) isRetired() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.retired
}

func (d *directory) isParted() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.parted
}

func (d *directory) isSucceeded() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.succeeded
}

// setSucceeded records that another directory was opened in place of a replaced one, or
// that it is no longer there. What was known about the processes left in the replaced one
// may be outdated, since that directory may have been back in the meantime. So it is
// checked again. If the new directory is the same one with another guard, its tickets
// show who is there.
func (d *directory) setSucceeded(by fileID, succeeded bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.orders++
	d.succeeded = succeeded
	d.parted = succeeded && by == d.sys.place()
	d.wake()
}

// retire refuses all waiters and returns their tickets; the caller must remove the files.
// inside is the number of holders. It returns false if the directory was already retired.
func (d *directory) retire(why error) (inside int, lost []*ticket, retired bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.retired {
		return 0, nil, false
	}
	d.retired = true
	d.idleSince = time.Now()
	lost = d.dismissWaitingLocked(why)
	d.wake()
	return d.owned, lost, true
}

// beginClosing makes the directory close once it is idle, and reports whether it is busy
// now.
func (d *directory) beginClosing() (busy bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closing = true
	d.wake()
	return d.busyLocked()
}

// close refuses all waiters, revokes the holders, and ends one use of the directory. It
// reports whether the directory is idle, and if not, whether the remaining holders are
// about to leave.
func (d *directory) close(why error) (idle, leaving bool) {
	d.mu.Lock()
	dismissed := d.dismissWaitingLocked(why)
	revokes := d.takeRevokesLocked()
	d.mu.Unlock()
	for _, revoke := range revokes {
		revoke(ErrClosed)
	}
	d.removeDismissed(dismissed...)
	d.release()

	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.busyLocked(), d.owned == 0 || len(revokes) > 0
}

// states describes the queues for people.
func (d *directory) states() []QueueState {
	me := ownerSeen{name: self(ownerKind{}, time.Time{}).String(), alive: new(true)}
	d.mu.Lock()
	defer d.mu.Unlock()
	return queueStates(d.path, d.queues, d.pausing.ends, d.clock(), func(t *ticket) ownerSeen {
		if t.Local() {
			return me
		}
		return ownerSeen{name: t.owner, alive: t.ownerAlive()}
	})
}

// ownerAlive reports whether a remote ticket's owner is alive, or nil if that is not
// known. The tickets of an owner that is found dead are taken out. Nobody can tell whose a
// file is that cannot be opened.
func (t *ticket) ownerAlive() *bool {
	switch {
	case t.known:
		return new(true)
	case t.unowned:
		return new(false)
	}
	return nil
}

// queueLocked returns the queue with a given name, for a ticket that joins it.
func (d *directory) queueLocked(prefix string) *ticketQueue {
	q := d.queues[prefix]
	if q == nil {
		q = &ticketQueue{prefix: prefix, marks: d.pausing.marks}
		d.queues[prefix] = q
		if len(d.pausing.ends) > 0 {
			q.setPause(d.pausing.ends.end(q))
		}
	}
	return q
}

// noteGroupLocked notes that a queue has tickets of a group.
func (d *directory) noteGroupLocked(q *ticketQueue, group string) {
	if q.noteGroup(group) && len(d.pausing.ends) > 0 {
		q.setPause(d.pausing.ends.end(q))
	}
}

// noteOwnerLocked notes that a queue has tickets of an owner.
func (d *directory) noteOwnerLocked(q *ticketQueue, o Owner) {
	if q.noteOwner(o) && len(d.pausing.ends) > 0 {
		q.setPause(d.pausing.ends.end(q))
	}
}

// remoteTickets lists the remote tickets that satisfy wanted and are still in their
// queues.
func (d *directory) remoteTickets(wanted func(*ticket) bool) (tickets []*ticket) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.tickets {
		if !t.Local() && !t.out && wanted(t) {
			tickets = append(tickets, t)
		}
	}
	return tickets
}

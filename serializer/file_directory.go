package serializer

import (
	"sync"
	"sync/atomic"
	"time"
)

// directory is a lock directory while the engine works in it: from the first
// arrival until a while after the last, or until it is replaced.
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
	tickets   map[string]*ticket // by name; ours stay until we hear that the file is gone
	owned     int                // tickets of this process
	users     int                // calls under way that need sys
	blocked   int                // queues in which one of ours waits for another process
	leftovers map[string]bool    // files that could not be removed; true for a ticket of ours
	others    bool               // another process gave out a ticket since we wrote down the last number
	listings  uint64             // how often the directory was listed
	retired   bool
	parted    bool    // retired, and when we last looked left by all, or back in its place
	unparted  *barred // why that cannot be told
	succeeded bool    // another directory was opened in its place: parted is from after that
	orders    int     // how often that has changed
	closing   bool    // the engine closes
	idleSince time.Time

	syncing sync.Mutex // guards the syncer
	syncer  syncer

	looked     int           // one more than orders when we last looked who is left; for the monitor
	started    bool          // we know whether the machine was started since; for the issuing goroutine
	reserved   atomic.Uint64 // numbers up to this one may be given out
	confirming atomic.Bool   // a goroutine waits for the disk
}

// directoryOwner is the engine that a directory reports to. It is called without
// a lock of the directory.
type directoryOwner interface {
	// retire turns away from a directory that was replaced.
	retire(*directory)

	// parted tells the last number that was given out in a replaced directory.
	parted(last uint64)

	// mayShut reports whether a directory is used no more. From then on, the
	// engine no longer uses it.
	mayShut(*directory) bool

	// shut tells that a directory is shut.
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

// wake makes the monitor look around.
func (d *directory) wake() {
	select {
	case d.nudge <- struct{}{}:
	default:
	}
}

// hurry makes the monitor look around even while it waits for a change in the directory: a
// sync of somebody else may have taken the change in.
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

// idle reports whether the directory may be shut. A replaced one stays open until
// its turns are over, those of other processes, too, and another is open: until then, it
// may come back, others go on in it, and a third directory take its place.
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

// setSucceeded tells a replaced directory that another was opened in its place, or that
// this is no longer the one there. Whether all have left is looked at anew: what was seen
// before may be old, for the directory may have been back meanwhile. If the other is the
// same directory again, be it with another guard, the tickets there speak for themselves.
func (d *directory) setSucceeded(by fileID, succeeded bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.orders++
	d.succeeded = succeeded
	d.parted = succeeded && by == d.sys.place()
	d.wake()
}

// retire refuses all waiters. It reports how many are inside, and false if the
// directory was retired before. The files of the lost tickets are left to be removed.
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

// beginClosing makes the directory close as soon as it is idle, and reports whether
// it is busy now.
func (d *directory) beginClosing() (busy bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closing = true
	d.wake()
	return d.busyLocked()
}

// close refuses all waiters, revokes the holders, and ends a use of the directory. It
// reports whether the directory is idle, and else whether those in it are about to
// leave.
func (d *directory) close(why error) (idle, leaving bool) {
	d.mu.Lock()
	dismissed := d.dismissWaitingLocked(why)
	revokes := d.takeRevokesLocked()
	d.mu.Unlock()
	for _, revoke := range revokes {
		revoke(ErrClosed)
	}
	d.removeTickets(dismissed)
	d.release()

	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.busyLocked(), d.owned == 0 || len(revokes) > 0
}

// states describes the queues for people.
func (d *directory) states() []QueueState {
	me := self(ownerKind{}, time.Time{}).String()
	d.mu.Lock()
	defer d.mu.Unlock()
	return queueStates(d.path, d.queues, d.pausing.ends, d.clock(), func(t *ticket) string {
		if t.Local() {
			return me
		}
		return t.owner
	})
}

// queueLocked returns the queue of a name, for a ticket that joins it.
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

// noteGroupLocked notes that tickets of a group are in a queue.
func (d *directory) noteGroupLocked(q *ticketQueue, group string) {
	if q.noteGroup(group) && len(d.pausing.ends) > 0 {
		q.setPause(d.pausing.ends.end(q))
	}
}

// noteOwnerLocked notes that tickets of an owner are in a queue.
func (d *directory) noteOwnerLocked(q *ticketQueue, o Owner) {
	if q.noteOwner(o) && len(d.pausing.ends) > 0 {
		q.setPause(d.pausing.ends.end(q))
	}
}

// remoteTickets lists the remote tickets in the queues that are wanted.
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

package serializer

import (
	"sync"
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

	removals  removals
	leftovers *leftovers
	numbers   numberReserve

	mu         sync.Mutex // guards what follows, and the tickets
	queues     ticketQueues
	tickets    map[string]*ticket    // by name; a local ticket stays until an event says that its file is gone
	owned      int                   // local tickets
	users      int                   // calls in progress that need sys
	blocked    int                   // queues in which a local ticket waits for another process
	pauseFiles map[string]*pauseFile // by name
	others     bool                  // another process has issued a ticket since this one recorded the last number
	listings   uint64                // number of times the directory was listed
	retirement retirement
	closing    bool // the engine is closing
	idleSince  time.Time

	syncing sync.Mutex // guards the syncer
	syncer  syncer
}

// directoryOwner is the engine that a directory reports to. Its methods are called
// without holding a lock of the directory.
type directoryOwner interface {
	// retire stops using a directory that was replaced.
	retire(*directory)

	// noteLast reports the last number that was issued in a replaced directory.
	noteLast(last uint64)

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
		queues:       newTicketQueues(),
		tickets:      make(map[string]*ticket),
		leftovers:    newLeftovers(),
		pauseFiles:   make(map[string]*pauseFile),
		numbers:      numberReserve{sys: sys},
		others:       true,
		retirement:   retirement{version: 1},
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
	if !d.busyLocked() && (d.closing || d.retirement.retired) { // nothing keeps it open
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
	case d.retirement.retired:
		return d.retirement.vacant && (d.retirement.hasSuccessor || time.Since(d.idleSince) >= lingerTime)
	}
	return !d.leftovers.haveOurs() && time.Since(d.idleSince) >= lingerTime
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
	return d.queues.states(d.path, d.clock(), func(t *ticket) ownerSeen {
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

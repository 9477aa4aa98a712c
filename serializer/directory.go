package serializer

import (
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// directory is a lock directory while the engine works in it: from the first
// arrival until a while after the last, or until it is replaced.
type directory struct {
	engine *File
	sys    lockDir
	nudge  chan struct{} // wakes the keeper
	done   chan struct{} // closed when the keeper has ended

	removals

	// Guarded by engine.mu.
	lines     map[string]*ticketQueue
	files     map[string]*ticket // by name; ours stay until we hear that the file is gone
	owned     int                // tickets of this process
	users     int                // calls under way that need sys
	blocked   int                // lines in which one of ours waits for another process
	leftovers []string           // files that could not be removed
	others    bool               // another process gave out a ticket since we wrote down the last number
	listings  uint64             // how often the directory was listed
	retired   bool
	parted    bool // retired, and all whose tickets are still out are known
	idleSince time.Time

	// observing orders those who look at the directory. It guards the rest.
	observing sync.Mutex
	found     findings
	peers     map[fileID]*peer
	ledgers   []*peer          // those that keep one; the one last found in first
	missing   map[*ticket]bool // tickets of others that are out though their file is gone
	surveyed  bool             // the first look is done
	audited   bool             // no ticket is out that we do not know of
	refreshed time.Time
	announced time.Time // when the log last told of an unowned file

	started    bool          // we know whether the machine was started since; for the issuing goroutine
	reserved   atomic.Uint64 // numbers up to this one may be given out
	confirming atomic.Bool   // somebody waits for the disk
	complain   time.Time
}

func newDirectory(f *File, sys lockDir) *directory {
	return &directory{
		engine:    f,
		sys:       sys,
		nudge:     make(chan struct{}, 1),
		done:      make(chan struct{}),
		lines:     make(map[string]*ticketQueue),
		files:     make(map[string]*ticket),
		others:    true,
		idleSince: time.Now(),
		peers:     make(map[fileID]*peer),
		missing:   make(map[*ticket]bool),
		refreshed: time.Now(),
	}
}

// wake makes the keeper look around.
func (d *directory) wake() {
	select {
	case d.nudge <- struct{}{}:
	default:
	}
}

// line returns the line of a queue, for an insertion.
func (d *directory) line(prefix string) *ticketQueue {
	l := d.lines[prefix]
	if l == nil {
		l = &ticketQueue{prefix: prefix}
		d.lines[prefix] = l
	}
	return l
}

// update draws the consequences of a change in a line: it lets in who may
// enter, and forgets the line if it is empty. It reports whether it let one of
// ours in.
func (d *directory) update(l *ticketQueue) (granted bool) {
	if !d.retired {
		granted = l.advance(grantLinked)
	}
	if blocked := l.blockedByRemote(); blocked != l.blocked {
		l.blocked = blocked
		if blocked {
			d.blocked++
			d.wake()
		} else {
			d.blocked--
		}
	}
	if l.Len() == 0 {
		delete(d.lines, l.prefix)
	}
	return granted
}

// grantLinked lets a ticket of ours in, unless its file is still being made:
// then linked does.
func grantLinked(e *ticket) {
	if e.linked {
		e.grant()
	}
}

// dismissWaiting refuses all of ours that are not inside, and returns them: their
// files are left to be removed. The caller holds engine.mu.
func (d *directory) dismissWaiting(err error) (dismissed []*ticket) {
	for _, l := range d.lines {
		for e := range l.All() {
			if e.Local() && !(e.Admitted() && e.linked) {
				d.drop(e)
				e.refuse(err)
				dismissed = append(dismissed, e)
			}
		}
	}
	return dismissed
}

// takeRevokes returns the callbacks of ours that are inside. The caller holds
// engine.mu.
func (d *directory) takeRevokes() (revokes []func(error)) {
	for _, l := range d.lines {
		for e := l.First(); e != nil; e = e.Next() {
			if e.Local() {
				revokes = appendRevoke(revokes, e.waiter)
			}
		}
	}
	return revokes
}

// drop takes a ticket out of its line and lets the next in. It reports whether
// that is one of ours. The caller holds engine.mu.
func (d *directory) drop(e *ticket) (granted bool) {
	if e.out {
		return false
	}
	e.out = true
	if e.Local() {
		d.owned--
		if d.owned == 0 {
			d.idleSince = time.Now()
		}
	}
	e.queue.remove(e)
	return d.update(e.queue)
}

// removeTicket removes the file of a ticket of ours that is over.
func (d *directory) removeTicket(p *ticket) { d.removed(p.name, d.sys.leave(p.name, p.Stamp)) }

// removeFile removes any other file.
func (d *directory) removeFile(name string) { d.removed(name, d.sys.remove(name)) }

// removed sees to it that the keeper tries again if a file could not be removed,
// for others wait for it.
func (d *directory) removed(name string, err error) {
	if err == nil {
		return
	}
	d.engine.log.Error("a lock file could not be removed; trying again", "path", filepath.Join(d.engine.path, name), "error", err)
	d.engine.mu.Lock()
	defer d.engine.mu.Unlock()
	d.leftovers = append(d.leftovers, name)
}

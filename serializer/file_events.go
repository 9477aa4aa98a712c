package serializer

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/queue"
)

// syncer applies the changes in a directory to its queues, and knows the other processes
// there. It is not safe for concurrent use: directory.syncing guards it.
type syncer struct {
	*directory
	found   findings
	owners  remoteOwners
	missing map[*ticket]bool // remote tickets that are out although their file is gone
	// markers are the eviction markers of tickets that are not local, as far as they may
	// still exist. The value is true if a tick did not find the ticket.
	markers map[string]bool
	// barredOwners are the owner files that cannot be opened, by name.
	barredOwners map[string]*barred
	audited      bool // every ticket that is out is known
	refreshed    time.Time

	noteChange func(change, []byte)
	noting     bool // the directory is locked by it
}

func newSyncer(d *directory) syncer {
	return syncer{
		directory: d,
		owners:    remoteOwners{byID: make(map[fileID]*remoteOwner)},
		missing:   make(map[*ticket]bool),
		refreshed: time.Now(),

		markers:      make(map[string]bool),
		barredOwners: make(map[string]*barred),
	}
}

// findings are what a sync leaves to be done after it has read the changes.
type findings struct {
	owners    []string  // owner files that appeared
	unknown   []*ticket // remote tickets whose rule is not known, or whether they count here
	evictions []string  // markers that appeared
	pauses    []string  // pause files that appeared
	missing   []*ticket // local tickets whose file somebody else removed
	gone      []*ticket // remote tickets whose file was removed, possibly not by their owner
	lost      []string  // owner files that were removed
	closed    []string  // owner files that their owner closed
}

// sync applies all changes in the directory up to now to the queues. guarded says whether
// the caller holds the guard.
func (d *directory) sync(guarded bool) error {
	d.syncing.Lock()
	defer d.syncing.Unlock()
	return d.syncer.sync(guarded)
}

func (s *syncer) sync(guarded bool) error {
	s.mu.Lock()
	listings := s.listings
	s.mu.Unlock()
	if s.noteChange == nil {
		s.noteChange = s.note // once: each such value is an allocation
	}
	err := s.sys.changes(s.noteChange)
	s.endNoting()
	if err != nil {
		return err
	}
	if s.listings > listings { // only a sync changes listings
		s.sweep()
		s.audited = false
	}
	s.followUp(guarded)
	if guarded {
		return s.audit()
	}
	return nil
}

// note notes a change. It locks the directory once for all changes of a sync, but not while
// the directory is listed.
func (s *syncer) note(kind change, name []byte) {
	if !s.noting {
		s.mu.Lock()
		s.noting = true
	}
	s.noteLocked(kind, name)
	if kind == listing {
		s.endNoting()
	}
}

func (s *syncer) endNoting() {
	if s.noting {
		s.noting = false
		s.mu.Unlock()
	}
}

// noteLocked notes one change.
func (s *syncer) noteLocked(kind change, name []byte) {
	t := s.tickets[string(name)]
	switch kind {
	case listing:
		s.listings++
	case appeared:
		if t != nil {
			t.seen = s.listings
			delete(s.missing, t)
			return
		}
		s.noteNewLocked(string(name))
	case vanished:
		switch {
		case t != nil:
			s.noteGoneLocked(t)
		case bytes.HasPrefix(name, []byte(ownerFiles)):
			s.found.lost = append(s.found.lost, string(name))
		case bytes.HasPrefix(name, []byte(pauseFiles)):
			s.noteResumedLocked(string(name))
		case bytes.HasPrefix(name, []byte(insideFiles)):
			s.noteUnmarkedLocked(string(name))
		}
	case closed:
		switch {
		case bytes.HasPrefix(name, []byte(ownerFiles)):
			s.found.closed = append(s.found.closed, string(name))
		case bytes.HasPrefix(name, []byte(guardFile)):
			s.others = true // see announce
		}
	}
}

func (s *syncer) noteNewLocked(name string) {
	switch {
	case strings.HasPrefix(name, ownerFiles), strings.HasPrefix(name, trialFiles):
		s.found.owners = append(s.found.owners, name)
		return
	case strings.HasPrefix(name, evictMarker):
		s.found.evictions = append(s.found.evictions, name)
		return
	case strings.HasPrefix(name, pauseFiles):
		s.notePauseLocked(name)
		return
	case strings.HasPrefix(name, insideFiles):
		s.noteMarkLocked(name)
		return
	}
	t := s.noteTicketLocked(name)
	if t != nil && (s.sys.checksUsers() || t.queue.special > 0 || len(s.queues.pauses) > 0) {
		s.found.unknown = append(s.found.unknown, t)
	}
}

// noteTicketLocked puts a remote ticket into its queue. It returns nil if the file is not a
// lock file.
func (d *directory) noteTicketLocked(name string) *ticket {
	parsed, err := ParseTicket(name)
	if err != nil {
		return nil
	}
	t := &ticket{Item: queue.Item[*ticket]{Unsure: true}, Ticket: parsed, name: name, seen: d.listings}
	d.tickets[name] = t
	d.others = true
	q := d.queues.open(t.Prefix)
	q.insert(t)
	d.advanceLocked(q)
	return t
}

func (s *syncer) noteGoneLocked(t *ticket) {
	// An owner file that could not be opened yet may be the ticket's.
	if !t.Local() && !t.out && (len(s.found.owners) > 0 || s.owners.mayHaveOut(t.Stamp)) {
		s.found.gone = append(s.found.gone, t)
		return
	}
	delete(s.tickets, t.name)
	switch {
	case t.out:
	case !t.Local():
		s.unowned.forget(t.name)
		s.dropLocked(t)
	case t.linked:
		s.found.missing = append(s.found.missing, t)
	}
}

// sweep takes out the tickets that the listing did not show. Other tickets may have come
// and gone unnoticed.
func (s *syncer) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.others = true
	s.sweepPausesLocked()
	for _, t := range s.tickets {
		if t.seen < s.listings && (!t.Local() || t.linked || t.out) {
			s.noteGoneLocked(t)
		}
	}
}

// followUp does what the sync has left to be done.
func (s *syncer) followUp(guarded bool) {
	found := s.found
	if found.owners == nil && found.unknown == nil && found.evictions == nil && found.pauses == nil && found.missing == nil &&
		found.gone == nil && found.lost == nil && found.closed == nil {
		return
	}
	s.found = findings{}
	for _, name := range found.owners {
		s.openOwner(name, guarded)
	}
	s.identifyTickets(found.unknown)
	for _, name := range found.pauses {
		s.followPause(name)
	}
	if found.pauses != nil {
		s.markInside()
	}
	for _, t := range found.missing {
		s.restore(t)
	}
	for _, name := range found.evictions {
		s.obey(name)
	}
	for _, name := range found.lost {
		s.restoreOwner(name)
	}
	for _, name := range found.closed {
		s.reapClosed(name)
	}
	for _, t := range found.gone {
		s.settleMissing(t)
	}
}

// restore handles a local ticket whose file somebody else removed. A waiter is refused as
// if evicted: it has lost its place for all other processes. A holder gets its file back,
// so that nobody else enters.
func (s *syncer) restore(t *ticket) {
	s.mu.Lock()
	if t.out {
		s.mu.Unlock()
		return
	}
	inside := t.Admitted()
	if !inside {
		s.dismissLocked(t, fmt.Errorf("%w: its lock file was removed", ErrEvicted))
	} else {
		s.tickets[t.name] = t
		t.seen = s.listings
	}
	s.mu.Unlock()
	path := filepath.Join(s.path, t.name)
	if !inside {
		s.log.Warn("the lock file of a waiting request was removed; it is refused", "path", path)
		s.removeTicket(t) // other processes wait until the ledger says that it is over
		return
	}
	s.log.Warn("the lock file of a request that is inside was removed; it is put back", "path", path)
	if err := s.sys.restore(t.name, t.kind()); err != nil && !errors.Is(err, fs.ErrExist) {
		s.complainAbout(t.name, err)
		s.found.missing = append(s.found.missing, t) // the next sync tries again
	}
	if s.hasLeft(t) {
		s.removeTicket(t)
	}
}

// restoreOwner puts the name of a local owner file back.
func (s *syncer) restoreOwner(name string) {
	if err := s.sys.restoreOwner(name); err != nil {
		s.complainAbout(name, err)
		s.found.lost = append(s.found.lost, name)
	}
}

// hasLeft reports whether a ticket is no longer in its queue.
func (d *directory) hasLeft(t *ticket) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return t.out
}

// complainAbout logs an error that concerns no particular caller.
func (s *syncer) complainAbout(name string, err error) {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotOurs) || errors.Is(err, errUnowned) {
		return
	}
	s.logRepeated(slog.LevelError, "a lock file could not be checked", "path", filepath.Join(s.path, name), "error", err)
}

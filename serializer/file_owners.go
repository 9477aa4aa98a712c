package serializer

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"
)

// remoteOwner is another process, or one of its owner files.
type remoteOwner struct {
	ownerProbe
	name string // of the owner file
}

// remoteOwners are the owners that are known and have not been found dead.
type remoteOwners struct {
	byID    map[fileID]*remoteOwner
	ledgers []*remoteOwner // those with a ledger; the last match first
}

func (r *remoteOwners) add(id fileID, o *remoteOwner) {
	r.byID[id] = o
	if o.keepsLedger() {
		r.ledgers = append(r.ledgers, o)
	}
}

func (r *remoteOwners) remove(id fileID) {
	o := r.byID[id]
	delete(r.byID, id)
	r.ledgers = slices.DeleteFunc(r.ledgers, func(other *remoteOwner) bool { return other == o })
	o.close()
}

// mayHaveOut reports whether a ticket may be out, as far as the ledgers say.
func (r *remoteOwners) mayHaveOut(stamp uint64) bool {
	for i, o := range r.ledgers {
		switch o.standing(stamp) {
		case isOut, isUnclear:
			return true
		case isOver:
			r.ledgers[0], r.ledgers[i] = o, r.ledgers[0] // probably the owner of the next ticket, too
			return false
		}
	}
	return false
}

// vouching returns a living owner whose ledger says that a ticket is out, or is unclear
// at the moment. It returns nil if there is none.
func (r *remoteOwners) vouching(stamp uint64) *remoteOwner {
	for _, o := range r.ledgers {
		if is := o.standing(stamp); is != isAbsent && is != isOver && o.mayLive() {
			return o
		}
	}
	return nil
}

// withUnknown returns a living owner with a ticket out that is not among the known ones,
// or nil.
func (r *remoteOwners) withUnknown(known map[uint64]bool) *remoteOwner {
	for _, o := range r.ledgers {
		if !o.accounted(known) && o.mayLive() {
			return o
		}
	}
	return nil
}

func (o *remoteOwner) mayLive() bool {
	dead, err := o.dead()
	return !dead || err != nil
}

// accounted reports whether every outstanding ticket of an owner is known.
func (o *remoteOwner) accounted(known map[uint64]bool) bool {
	stamps, ok := o.outstanding()
	for _, stamp := range stamps {
		ok = ok && known[stamp]
	}
	return ok
}

// openOwner opens an owner file that appeared. If it cannot be opened now, the next sync
// or the next tick tries again.
func (s *syncer) openOwner(name string, guarded bool) {
	err := s.tryOwner(name)
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist), errors.Is(err, errNotOurs):
	case errors.Is(err, errUnowned):
		if abandonedOwner(name, guarded) {
			s.removeFile(name)
		} else {
			s.found.owners = append(s.found.owners, name)
		}
	default:
		s.barOwner(name, err)
		return
	}
	delete(s.barredOwners, name)
}

func (s *syncer) tryOwner(name string) error {
	id, err := s.sys.identify(name)
	if o := s.owners.byID[id]; err == nil && o != nil {
		o.name = name // until now, it was known by a ticket's name
		return nil
	}
	if err != nil || s.sys.owns(id) {
		return err
	}
	probe, err := s.sys.probe(name)
	if err != nil {
		return err
	}
	s.owners.add(id, &remoteOwner{ownerProbe: probe, name: name})
	s.reapIfDead(id)
	return nil
}

// abandonedOwner reports whether a file without an owner's text was left by a process
// that died while making it. Owner files are made under the guard, so nobody is making
// one while this process holds the guard. A trial file no longer needs its name once it
// exists.
func abandonedOwner(name string, guarded bool) bool {
	return guarded || strings.HasPrefix(name, trialFiles)
}

// identifyTickets finds out who owns the tickets.
func (s *syncer) identifyTickets(tickets []*ticket) {
	for _, t := range tickets {
		s.identify(t)
	}
}

// identifyAll finds out who owns each remote ticket.
func (d *directory) identifyAll() {
	d.syncing.Lock()
	defer d.syncing.Unlock()
	d.syncer.identifyUnknown()
}

func (s *syncer) identifyUnknown() {
	s.identifyTickets(s.remoteTickets(func(t *ticket) bool { return !t.known }))
}

// identifyFor finds out who owns the tickets ahead of a batch. Only some arrivals need
// that; the others only need to know that somebody is ahead. The caller holds the guard,
// so no other ticket is issued in between.
func (d *directory) identifyFor(batch []*ticket) {
	unknown := d.unknownAhead(batch)
	if unknown == nil {
		return
	}
	d.syncing.Lock()
	defer d.syncing.Unlock()
	d.syncer.identifyTickets(unknown)
}

func (d *directory) unknownAhead(batch []*ticket) (tickets []*ticket) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var done *ticketQueue
	for _, arrival := range batch {
		q := d.queues.byName[arrival.Prefix]
		if q == nil || q == done || q.unnamed == 0 {
			continue
		}
		// A remote reader that is inside counts as waiting until its rule is known.
		seemsFull := arrival.max > 0 && q.Waiting()+len(batch) > arrival.max
		if !arrival.needsRules() && !seemsFull {
			continue
		}
		for t := range q.All() {
			if !t.Local() && !t.known {
				tickets = append(tickets, t)
			}
		}
		done = q
	}
	return tickets
}

// identify finds out who owns a remote ticket. Until that is known, the local tickets
// that it concerns wait; see [queue.Queue.Admit].
func (s *syncer) identify(t *ticket) {
	id, err := s.sys.identify(t.name)
	if errors.Is(err, errNotOurs) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.dropLocked(t)
		return
	}
	if err != nil {
		s.complainAbout(t.name, err) // if it is gone, an event will say so
		return
	}
	if s.sys.owns(id) { // somebody else linked it to our owner file
		s.noteUnowned(t)
		return
	}
	o, err := s.ownerOf(id, t.name)
	if errors.Is(err, errUnowned) {
		s.noteUnowned(t)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case t.out:
	case bars(err):
		t.barLocked(err)
	case err == nil:
		t.barred = nil
		t.owner = o.owner().String()
		s.queues.noteOwner(t.queue, o.owner())
		t.queue.identify(t, o.owner().Rule)
		s.advanceLocked(t.queue)
	}
}

// ownerOf returns the owner of a ticket.
func (s *syncer) ownerOf(id fileID, name string) (*remoteOwner, error) {
	if o := s.owners.byID[id]; o != nil {
		return o, nil
	}
	probe, err := s.sys.probe(name)
	if err != nil {
		s.complainAbout(name, err)
		return nil, err
	}
	if probe.id() != id {
		probe.close()
		return nil, fs.ErrNotExist // replaced in the meantime
	}
	o := &remoteOwner{ownerProbe: probe, name: name}
	s.owners.add(id, o)
	return o, nil
}

// reapDead takes out the tickets of all dead owners.
func (s *syncer) reapDead() {
	for id := range s.owners.byID {
		s.reapIfDead(id)
	}
}

// reapClosed reaps an owner whose file was closed. The event may come shortly before the
// owner's lock is released.
func (s *syncer) reapClosed(name string) {
	for id, o := range s.owners.byID {
		if o.name != name {
			continue
		}
		for range deathRetries {
			if s.reapIfDead(id); s.owners.byID[id] == nil {
				break
			}
			time.Sleep(deathPause)
		}
	}
}

func (s *syncer) reapIfDead(id fileID) {
	o := s.owners.byID[id]
	dead, err := o.dead()
	if err != nil {
		s.complainAbout(o.name, err)
	}
	if !dead || err != nil {
		return
	}
	taken := 0
	for _, t := range s.remoteTickets(func(*ticket) bool { return true }) {
		// The name must still refer to the dead owner's file. Numbers are never reused,
		// but what is known about the name may be outdated.
		now, err := s.sys.identify(t.name)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, errNotOurs), err == nil && now != id:
			continue
		case err != nil:
			s.complainAbout(t.name, err)
			return // the next tick tries again
		}
		s.removeFile(t.name)
		s.mu.Lock()
		s.dropLocked(t)
		s.mu.Unlock()
		taken++
	}
	if now, err := s.sys.identify(o.name); err == nil && now == id {
		s.removeFile(o.name)
	}
	if taken > 0 {
		s.log.Warn("a process ended without leaving its queues; its tickets are taken out",
			"path", s.path, "owner", o.owner().String(), "tickets", taken)
	}
	s.owners.remove(id)
	s.settleAllMissing()
}

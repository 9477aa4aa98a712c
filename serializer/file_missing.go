package serializer

import (
	"errors"
	"fmt"
	"path/filepath"
)

// A lock file that is gone may have been removed by its owner, whose ticket is
// over, or by another program or a person. The owners' ledgers tell the two apart:
// see [ledger]. A ticket whose owner says that it is out keeps its place in the
// queue, and so does one of which that is not known. It is over when the owner has said
// so or has died.

// errUnaccounted is why no tickets are given out at the moment.
var errUnaccounted = errors.New("a lock file was removed by another program, and its owner has not put it back yet")

// mayBeOutLocked reports whether a ticket whose file is gone may be out all the same.
func (s *syncer) mayBeOutLocked(t *ticket) bool {
	if len(s.found.owners) > 0 {
		return true // its owner may be one that we are about to know
	}
	for i, o := range s.ledgers {
		switch o.standing(t.Stamp) {
		case isOut, isUnclear:
			return true
		case isOver:
			s.ledgers[0], s.ledgers[i] = o, s.ledgers[0] // likely that of the next one, too
			return false
		}
	}
	return false
}

// settleMissing drops a ticket whose file is gone if it is over. Else the ticket is
// kept for the next tick. An owner file that could not be opened yet is not the
// ticket's, or was not complete when the ticket was made.
func (s *syncer) settleMissing(t *ticket) {
	o := s.vouching(t.Stamp)
	if o == nil {
		delete(s.missing, t)
		s.forget(t)
		return
	}
	if !s.missing[t] {
		s.missing[t] = true
		s.log.Warn("the lock file of a request was removed, but not by its process; it keeps its place until that says that it is over",
			"path", filepath.Join(s.path, t.name), "owner", o.owner().String())
	}
}

// forget drops a ticket of another process whose file is gone.
func (d *directory) forget(t *ticket) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tickets[t.name] == t {
		delete(d.tickets, t.name)
		d.unowned.forget(t.name)
	}
	d.dropLocked(t)
}

// vouching returns the living owner that says that a ticket is out, or that cannot
// say at the moment.
func (s *syncer) vouching(stamp uint64) *remoteOwner {
	for _, o := range s.ledgers {
		if is := o.standing(stamp); is == isAbsent || is == isOver {
			continue
		}
		if dead, err := o.dead(); !dead || err != nil {
			return o
		}
	}
	return nil
}

// settleAllMissing looks again at all tickets that keep their place without a file.
func (s *syncer) settleAllMissing() {
	for t := range s.missing {
		s.settleMissing(t)
	}
}

// audit makes sure, once after each listing, that no ticket is out of which there is
// no file: its place is not known, so nobody can be let in behind it. The caller
// holds the guard, so no ticket comes meanwhile.
func (s *syncer) audit() error {
	if s.audited {
		return nil
	}
	known := s.knownStamps()
	for _, o := range s.ledgers {
		if o.accounted(known) {
			continue
		}
		if dead, err := o.dead(); !dead || err != nil {
			return &StorageError{"giving out tickets in", s.path, fmt.Errorf("%w: %s", errUnaccounted, o.owner())}
		}
	}
	s.audited = true
	return nil
}

// accounted reports whether all tickets of an owner that are out are known.
func (o *remoteOwner) accounted(known map[uint64]bool) bool {
	stamps, ok := o.outstanding()
	for _, stamp := range stamps {
		ok = ok && known[stamp]
	}
	return ok
}

func (d *directory) knownStamps() map[uint64]bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := make(map[uint64]bool, len(d.tickets))
	for _, t := range d.tickets {
		known[t.Stamp] = known[t.Stamp] || !t.Local() && !t.out
	}
	return known
}

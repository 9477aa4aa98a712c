package serializer

import (
	"errors"
	"fmt"
	"path/filepath"
)

// If a lock file disappears, its owner may have removed it because the ticket is over. Or
// another program or a person may have done so. The owners' ledgers distinguish the two
// cases: see [ledger]. If the owner says that the ticket is out, or if that is not known,
// the ticket keeps its place in the queue. It is over when the owner has said so or has
// died.

// errUnaccounted is why no tickets are issued at the moment.
var errUnaccounted = errors.New("a lock file was removed by another program, and its owner has not put it back yet")

// settleMissing drops a ticket whose file is gone, if it is over. Otherwise, the ticket
// is kept until the next tick. If an owner file could not be opened yet, it is not the
// ticket's owner file, or it was incomplete when the ticket was made.
func (s *syncer) settleMissing(t *ticket) {
	o := s.owners.vouching(t.Stamp)
	if o == nil {
		delete(s.missing, t)
		s.forget(t)
		return
	}
	if !s.missing[t] {
		s.missing[t] = true
		s.log.Warn("the lock file of a request was removed, but not by its process; the request keeps its place until its process ends it",
			"path", filepath.Join(s.path, t.name), "owner", o.owner().String())
	}
}

// forget drops a remote ticket whose file is gone.
func (d *directory) forget(t *ticket) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tickets[t.name] == t {
		delete(d.tickets, t.name)
		d.unowned.forget(t.name)
	}
	d.dropLocked(t)
}

// settleAllMissing settles all tickets that keep their place without a file.
func (s *syncer) settleAllMissing() {
	for t := range s.missing {
		s.settleMissing(t)
	}
}

// audit checks, once after each listing, that each ticket that is out has a file. The
// place of a ticket without a file is not known, so nobody may be admitted behind it. The
// caller holds the guard, so no ticket is issued in the meantime.
func (s *syncer) audit() error {
	if s.audited {
		return nil
	}
	if o := s.owners.withUnknown(s.knownStamps()); o != nil {
		return &StorageError{"issuing tickets in", s.path, fmt.Errorf("%w: %s", errUnaccounted, o.owner())}
	}
	s.audited = true
	return nil
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

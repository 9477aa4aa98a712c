package serializer

import (
	"errors"
	"io/fs"
	"strings"
)

// evictToken takes a ticket out of a queue, or asks its owner to do so.
func (d *directory) evictToken(queue string, token uint64) error {
	if err := d.sync(false); err != nil {
		return err
	}
	d.mu.Lock()
	t := d.queues.byName[queue].find(token)
	d.mu.Unlock()
	switch {
	case t == nil:
		return ErrNoTicket
	case !t.Local():
		return evictFile(d.sys, t.Ticket)
	}
	if revoke := d.evict(t); revoke != nil {
		revoke(ErrEvicted)
	}
	return nil
}

// evict takes a local waiter out of its queue. For a holder, it returns the callback that
// revokes the turn.
func (d *directory) evict(t *ticket) (revoke func(error)) {
	d.mu.Lock()
	if t.out {
		d.mu.Unlock()
		return nil
	}
	if t.Admitted() {
		defer d.mu.Unlock()
		return t.takeRevoke()
	}
	d.dismissLocked(t, ErrEvicted)
	d.mu.Unlock()
	d.removeDismissed(t)
	return nil
}

// obey evicts the ticket that a marker names, if it is local. The marker of a remote
// ticket is remembered: if the ticket goes before its owner reads the marker, nobody else
// would remove it.
func (s *syncer) obey(marker string) {
	if _, err := s.sys.identify(marker); err != nil {
		delete(s.markers, marker)
		return // gone, or made by a user whose files do not count here
	}
	stamp, _ := parseDigits(strings.TrimPrefix(marker, evictMarker))
	t, _ := s.withNumber(stamp)
	if t == nil {
		s.markers[marker] = false
		return
	}
	delete(s.markers, marker)
	s.removeFile(marker)
	if revoke := s.evict(t); revoke != nil {
		go revoke(ErrEvicted) // not during the sync, which holds locks
	}
}

// removeStaleMarkers removes the markers of tickets that are gone. A listing may show a
// marker before its ticket. So a marker is stale only if its ticket is missing twice,
// except in the last call.
func (s *syncer) removeStaleMarkers(last bool) {
	for marker, seen := range s.markers {
		stamp, _ := parseDigits(strings.TrimPrefix(marker, evictMarker))
		if ours, remote := s.withNumber(stamp); ours != nil || remote {
			continue
		}
		if !seen && !last {
			s.markers[marker] = true
			continue
		}
		delete(s.markers, marker)
		if _, err := s.sys.identify(marker); err == nil {
			s.removeFile(marker)
		}
	}
}

// withNumber returns the local ticket with a number, or reports whether there is a remote
// one.
func (d *directory) withNumber(stamp uint64) (ours *ticket, remote bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.tickets {
		if t.Stamp != stamp || t.out {
			continue
		}
		if t.Local() {
			return t, false
		}
		remote = true
	}
	return nil, remote
}

// evictFile takes out a ticket of another process in a given directory. It asks a living
// owner to do so, and removes the file of a ticket without one.
func evictFile(sys lockDir, t Ticket) error {
	name := t.Name()
	probe, err := sys.probe(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ErrNoTicket
	case errors.Is(err, errUnowned):
		return sys.remove(name)
	case err != nil:
		return err
	}
	defer probe.close()
	dead, err := probe.dead()
	if err != nil {
		return err
	}
	if dead {
		return sys.remove(name)
	}
	return sys.mark(evictMarker + string(appendDigits(nil, t.Stamp, stampDigits)))
}

package serializer

import (
	"errors"
	"io/fs"
	"strings"
)

// evictToken takes a ticket out of a queue, or makes its owner do so.
func (d *directory) evictToken(queue string, token uint64) error {
	if err := d.sync(false); err != nil {
		return err
	}
	d.mu.Lock()
	t := d.queues[queue].find(token)
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

// evict takes a waiting ticket of ours out. It returns the callback for one that is
// inside.
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
	d.removeTicket(t)
	return nil
}

// obey evicts the ticket that a marker names, if it is ours. Another process's marker is
// kept in mind: if the ticket goes before its owner reads it, nobody else removes it.
func (s *syncer) obey(marker string) {
	if _, err := s.sys.identify(marker); err != nil {
		delete(s.markers, marker)
		return // gone, or made by a user who has no say here
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
		go revoke(ErrEvicted) // not while we sync
	}
}

// removeStaleMarkers removes the markers of tickets that are gone. A listing may show a
// marker before its ticket, so unless it is the last time, only the second look counts.
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

// withNumber finds a ticket of ours by its number, or tells whether there is a remote
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

// evictFile takes out a ticket of another process, given its directory. A
// living owner is asked to do it; what has none is removed.
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

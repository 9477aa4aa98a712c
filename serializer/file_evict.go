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

// obey evicts the ticket that a marker names, if it is ours.
func (s *syncer) obey(marker string) {
	if _, err := s.sys.identify(marker); err != nil {
		return // gone, or made by a user who has no say here
	}
	stamp, _ := parseDigits(strings.TrimPrefix(marker, evictMarker))
	t, remote := s.withNumber(stamp)
	switch {
	case t != nil:
		s.removeFile(marker)
		if revoke := s.evict(t); revoke != nil {
			go revoke(ErrEvicted) // not while we sync
		}
	case !remote && !s.synced:
		s.removeFile(marker) // of a ticket that is long gone
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

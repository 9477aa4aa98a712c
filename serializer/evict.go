package serializer

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// evict takes a ticket of ours out, or tells the one inside to go.
func (d *directory) evict(p *ticket) {
	f := d.engine
	f.mu.Lock()
	if p.out {
		f.mu.Unlock()
		return
	}
	if p.Admitted() {
		revoke := p.takeRevoke()
		f.mu.Unlock()
		if revoke != nil {
			revoke(ErrEvicted)
		}
		return
	}
	d.drop(p)
	p.refuse(ErrEvicted)
	f.mu.Unlock()
	d.removeTicket(p)
}

// obey evicts the ticket that a marker names, if it is ours.
func (d *directory) obey(marker string) {
	if _, err := d.sys.identify(marker); err != nil {
		return // gone, or made by somebody who has no say here
	}
	stamp, _ := parseDigits(strings.TrimPrefix(marker, evictMarker))
	e, others := d.holder(stamp)
	switch {
	case e != nil:
		d.removeFile(marker)
		d.evict(e)
	case !others && !d.surveyed:
		d.removeFile(marker) // of a ticket that is long gone
	}
}

// holder finds a ticket of ours by its number, and whether others have it.
func (d *directory) holder(stamp uint64) (e *ticket, others bool) {
	d.engine.mu.Lock()
	defer d.engine.mu.Unlock()
	for _, e := range d.files {
		if e.Stamp != stamp || e.out {
			continue
		}
		if e.Local() {
			return e, false
		}
		others = true
	}
	return nil, others
}

// evictFile takes out a ticket of another process, given its directory. A
// living owner is asked to do it; what has none is removed.
func evictFile(sys lockDir, t Ticket) error {
	name := t.Name()
	probe, err := sys.probe(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("evicting ticket %d from queue %q: %w", t.Stamp, t.Prefix, ErrNoTicket)
	case errors.Is(err, errStranger):
		return sys.remove(name)
	case err != nil:
		return fmt.Errorf("evicting ticket %d from queue %q: %w", t.Stamp, t.Prefix, err)
	}
	defer probe.close()
	dead, err := probe.dead()
	if err != nil {
		return fmt.Errorf("evicting ticket %d from queue %q: %w", t.Stamp, t.Prefix, err)
	}
	if dead {
		return sys.remove(name)
	}
	return sys.mark(evictMarker + string(appendDigits(nil, t.Stamp, stampDigits)))
}

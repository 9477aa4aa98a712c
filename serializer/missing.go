package serializer

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// A lock file that is gone may have been removed by its owner, whose ticket is
// over, or by another program or a person. The owners' ledgers tell the two apart:
// see [ledger]. A ticket whose owner says that it is out keeps its place in line,
// and so does one of which it cannot be told. It is over when the owner has said so
// or has died.

// errUnaccounted is why no tickets are given out at the moment.
var errUnaccounted = errors.New("a lock file was removed by another program, and its owner has not put it back yet")

// mayBeOut reports whether a ticket whose file is gone may be out all the same.
// The caller holds observing and engine.mu.
func (d *directory) mayBeOut(e *ticket) bool {
	if len(d.found.owners) > 0 {
		return true // its owner may be one whom we are about to meet
	}
	for i, p := range d.ledgers {
		switch p.standing(e.Stamp) {
		case isOut, isUnclear:
			return true
		case isOver:
			d.ledgers[0], d.ledgers[i] = p, d.ledgers[0] // likely that of the next one, too
			return false
		}
	}
	return false
}

// settleMissing drops a ticket whose file is gone if it is over, else it keeps it
// for the next tick. An owner file that could not be opened yet is not the
// ticket's, or was not complete when the ticket was made.
func (d *directory) settleMissing(e *ticket) {
	p := d.vouching(e.Stamp)
	if p == nil {
		delete(d.missing, e)
		d.forget(e)
		return
	}
	if !d.missing[e] {
		d.missing[e] = true
		d.engine.log.Warn("the lock file of a request was removed, but not by its process; it keeps its place until that says that it is over",
			"path", filepath.Join(d.engine.path, e.name), "owner", p.owner().String())
	}
}

// forget drops a ticket of another process whose file is gone.
func (d *directory) forget(e *ticket) {
	d.engine.mu.Lock()
	defer d.engine.mu.Unlock()
	if d.files[e.name] == e {
		delete(d.files, e.name)
		delete(d.engine.strangers, e.name)
	}
	d.drop(e)
}

// vouching returns the living owner who says that a ticket is out, or who cannot
// say at the moment.
func (d *directory) vouching(stamp uint64) *peer {
	for _, p := range d.ledgers {
		if s := p.standing(stamp); s == isAbsent || s == isOver {
			continue
		}
		if dead, err := p.dead(); !dead || err != nil {
			return p
		}
	}
	return nil
}

// settleAllMissing looks again at all tickets that keep their place without a file.
func (d *directory) settleAllMissing() {
	for e := range d.missing {
		d.settleMissing(e)
	}
}

// audit makes sure, once after each listing, that no ticket is out of which there is
// no file: its place is not known, so nobody can be let in behind it. The caller
// holds the guard, so no ticket comes meanwhile.
func (d *directory) audit() error {
	if d.audited {
		return nil
	}
	known := d.knownStamps()
	for _, p := range d.ledgers {
		if p.accounted(known) {
			continue
		}
		if dead, err := p.dead(); !dead || err != nil {
			return &StorageError{"giving out tickets in", d.engine.path, fmt.Errorf("%w: %s", errUnaccounted, p.owner())}
		}
	}
	d.audited = true
	return nil
}

// accounted reports whether all tickets of a peer that are out are known.
func (p *peer) accounted(known map[uint64]bool) bool {
	stamps, ok := p.outstanding()
	for _, stamp := range stamps {
		ok = ok && known[stamp]
	}
	return ok
}

func (d *directory) knownStamps() map[uint64]bool {
	d.engine.mu.Lock()
	defer d.engine.mu.Unlock()
	known := make(map[uint64]bool, len(d.files))
	for _, e := range d.files {
		known[e.Stamp] = known[e.Stamp] || !e.Local() && !e.out
	}
	return known
}

// refreshTime is how often the files that stay are made to look new: less than any
// program that cleans up takes for old.
const refreshTime = time.Minute

func (d *directory) refresh() {
	if time.Since(d.refreshed) < refreshTime {
		return
	}
	d.refreshed = time.Now()
	d.sys.refresh()
}

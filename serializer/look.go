package serializer

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/orderly-http/caddy-orderly/serializer/queue"
)

// findings are what a look at the directory leaves to be done.
type findings struct {
	owners    []string  // owner files that appeared
	unknown   []*ticket // tickets whose rule, or right to be here, is not known
	evictions []string  // markers that appeared
	missing   []*ticket // tickets of ours whose file somebody removed
	gone      []*ticket // tickets of others whose file was removed, perhaps not by them
	lost      []string  // owner files that were removed
	closed    []string  // owner files that their owners closed
}

// observe hears out all that has happened in the directory up to now. guarded
// tells whether the caller holds the guard.
func (d *directory) observe(guarded bool) error {
	d.observing.Lock()
	defer d.observing.Unlock()
	return d.look(guarded)
}

// look is observe for those who hold observing.
func (d *directory) look(guarded bool) error {
	f := d.engine
	f.mu.Lock()
	listings := d.listings
	f.mu.Unlock()
	n := noting{directory: d}
	err := d.sys.changes(n.note)
	n.unlock()
	if err != nil {
		return err
	}
	if d.listings > listings {
		d.sweep()
		d.audited = false
		f.mu.Lock()
		d.others = true // whose tickets came and went unheard
		f.mu.Unlock()
	}
	d.followUp(guarded)
	d.surveyed = true
	if guarded {
		return d.audit()
	}
	return nil
}

// noting enters changes in the lines. It takes engine.mu once for all of them,
// and leaves it while the directory is listed.
type noting struct {
	*directory
	locked bool
}

func (n *noting) note(kind change, name []byte) {
	if !n.locked {
		n.engine.mu.Lock()
		n.locked = true
	}
	n.directory.note(kind, name)
	if kind == listing {
		n.unlock()
	}
}

func (n *noting) unlock() {
	if n.locked {
		n.engine.mu.Unlock()
		n.locked = false
	}
}

// note enters one change in the lines. The caller holds engine.mu.
func (d *directory) note(kind change, name []byte) {
	e := d.files[string(name)]
	switch kind {
	case listing:
		d.listings++
	case appeared:
		if e != nil {
			e.seen = d.listings
			delete(d.missing, e)
			return
		}
		d.noteNew(string(name))
	case vanished:
		switch {
		case e != nil:
			d.noteGone(e)
		case bytes.HasPrefix(name, []byte(ownerFiles)):
			d.found.lost = append(d.found.lost, string(name))
		}
	case closed:
		if bytes.HasPrefix(name, []byte(ownerFiles)) {
			d.found.closed = append(d.found.closed, string(name))
		}
	}
}

func (d *directory) noteNew(name string) {
	switch {
	case strings.HasPrefix(name, ownerFiles), strings.HasPrefix(name, trialFiles):
		d.found.owners = append(d.found.owners, name)
		return
	case strings.HasPrefix(name, evictMarker):
		d.found.evictions = append(d.found.evictions, name)
		return
	}
	t, err := ParseTicket(name)
	if err != nil {
		return // not of any queue
	}
	e := &ticket{Item: queue.Item[*ticket]{Unsure: true}, Ticket: t, name: name, seen: d.listings}
	d.files[name] = e
	d.others = true
	l := d.line(t.Prefix)
	l.insert(e)
	d.update(l)
	if d.sys.checksUsers() || l.special > 0 {
		d.found.unknown = append(d.found.unknown, e)
	}
}

func (d *directory) noteGone(e *ticket) {
	if !e.Local() && !e.out && d.mayBeOut(e) {
		d.found.gone = append(d.found.gone, e)
		return
	}
	delete(d.files, e.name)
	switch {
	case e.out:
	case !e.Local():
		delete(d.engine.strangers, e.name)
		d.drop(e)
	case e.linked:
		d.found.missing = append(d.found.missing, e)
	}
}

// sweep takes out the tickets that the listing did not show.
func (d *directory) sweep() {
	f := d.engine
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range d.files {
		if e.seen < d.listings && (!e.Local() || e.linked || e.out) {
			d.noteGone(e)
		}
	}
}

// followUp does what a look has left to be done.
func (d *directory) followUp(guarded bool) {
	found := d.found
	if found.owners == nil && found.unknown == nil && found.evictions == nil && found.missing == nil &&
		found.gone == nil && found.lost == nil && found.closed == nil {
		return
	}
	d.found = findings{}
	for _, name := range found.owners {
		d.meet(name, guarded)
	}
	d.identifyEntries(found.unknown)
	for _, name := range found.evictions {
		d.obey(name)
	}
	for _, p := range found.missing {
		d.restore(p)
	}
	for _, name := range found.lost {
		d.restoreOwner(name)
	}
	for _, name := range found.closed {
		d.buryClosed(name)
	}
	for _, e := range found.gone {
		d.settleMissing(e)
	}
}

// restore deals with a ticket of ours whose file somebody removed. One that
// waits is out, as if evicted: its place is gone for all other processes. One
// that is inside gets its file back, so that nobody else enters.
func (d *directory) restore(p *ticket) {
	f := d.engine
	f.mu.Lock()
	if p.out {
		f.mu.Unlock()
		return
	}
	inside := p.Admitted()
	if !inside {
		d.drop(p)
		p.refuse(fmt.Errorf("%w: its lock file was removed", ErrEvicted))
	} else {
		d.files[p.name] = p
		p.seen = d.listings
	}
	f.mu.Unlock()
	path := filepath.Join(f.path, p.name)
	if !inside {
		f.log.Warn("the lock file of a waiting request was removed; it is refused", "path", path)
		d.removeTicket(p) // the others wait for our word
		return
	}
	f.log.Warn("the lock file of a request that is inside was removed; it is put back", "path", path)
	if err := d.sys.restore(p.name, p.Rule); err != nil && !errors.Is(err, fs.ErrExist) {
		d.complainAbout(p.name, err)
		d.found.missing = append(d.found.missing, p) // the next look tries again
	}
	if p.gone(f) {
		d.removeTicket(p)
	}
}

// restoreOwner puts back the name of an owner file of ours.
func (d *directory) restoreOwner(name string) {
	if err := d.sys.restoreOwner(name); err != nil {
		d.complainAbout(name, err)
		d.found.lost = append(d.found.lost, name)
	}
}

// gone reports whether the place has been left.
func (p *ticket) gone(f *File) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return p.out
}

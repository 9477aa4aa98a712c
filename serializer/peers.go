package serializer

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// peer is another process, or one of its owner files.
type peer struct {
	ownerProbe
	name string // of the owner file
}

// meet opens an owner file that appeared. What cannot be opened now is looked
// at again.
func (d *directory) meet(name string, guarded bool) {
	id, err := d.sys.identify(name)
	if p := d.peers[id]; err == nil && p != nil {
		p.name = name // until now, we knew it by a ticket
		return
	}
	if err == nil && d.sys.owns(id) {
		return
	}
	var probe ownerProbe
	if err == nil {
		probe, err = d.sys.probe(name)
	}
	switch {
	case err == nil:
		d.addPeer(id, &peer{ownerProbe: probe, name: name})
		d.buryIfDead(id)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errNotOurs):
	case errors.Is(err, errStranger) && d.abandoned(name, guarded):
		d.removeFile(name)
	default:
		d.complainAbout(name, err)
		d.found.owners = append(d.found.owners, name)
	}
}

// abandoned reports whether a file that says nothing of its owner is left over
// from one who died over it. Owner files are made under the guard, so with the
// guard in our hands nobody is about to write one. The file of a trial does not
// need its name any more once it is made.
func (d *directory) abandoned(name string, guarded bool) bool {
	return guarded || strings.HasPrefix(name, trialFiles)
}

// complainAbout logs an error that is not anybody's in particular, now and then.
func (d *directory) complainAbout(name string, err error) {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotOurs) || errors.Is(err, errStranger) || time.Since(d.complain) < time.Second {
		return
	}
	d.complain = time.Now()
	d.engine.log.Error("looking at a lock file failed", "path", filepath.Join(d.engine.path, name), "error", err)
}

// identifyEntries finds out whose tickets these are.
func (d *directory) identifyEntries(entries []*ticket) {
	for _, e := range entries {
		d.identify(e)
	}
}

// identifyAll does so for all tickets of others.
func (d *directory) identifyAll() {
	d.observing.Lock()
	defer d.observing.Unlock()
	d.identifyEntries(d.foreign(func(e *ticket) bool { return !e.known }))
}

// identifyFor finds out whose tickets those are that a batch is about to stand
// behind. Only arrivals that may be inside with others need to know: for all
// others it is enough that somebody is there. The caller holds the guard, so
// nobody comes in between.
func (d *directory) identifyFor(batch []*ticket) {
	unknown := d.unknownAhead(batch)
	if unknown == nil {
		return
	}
	d.observing.Lock()
	defer d.observing.Unlock()
	d.identifyEntries(unknown)
}

func (d *directory) unknownAhead(batch []*ticket) (entries []*ticket) {
	d.engine.mu.Lock()
	defer d.engine.mu.Unlock()
	var done *ticketQueue
	for _, p := range batch {
		l := d.lines[p.Prefix]
		if l == nil || l == done || l.unnamed == 0 || p.Rule.Alone() {
			continue
		}
		for e := l.First(); e != nil; e = e.Next() {
			if !e.Local() && !e.known {
				entries = append(entries, e)
			}
		}
		done = l
	}
	return entries
}

// foreign lists the tickets of others that are in line and wanted.
func (d *directory) foreign(wanted func(*ticket) bool) (entries []*ticket) {
	d.engine.mu.Lock()
	defer d.engine.mu.Unlock()
	for _, e := range d.files {
		if !e.Local() && !e.out && wanted(e) {
			entries = append(entries, e)
		}
	}
	return entries
}

// identify finds out whose ticket e is. Until it is known, none of ours enters
// behind it whom that concerns; see [line.advance].
func (d *directory) identify(e *ticket) {
	id, err := d.sys.identify(e.name)
	if errors.Is(err, errNotOurs) {
		d.engine.mu.Lock()
		defer d.engine.mu.Unlock()
		d.drop(e)
		return
	}
	if err != nil {
		d.complainAbout(e.name, err) // if it is gone, we will hear of that
		return
	}
	p, err := d.peer(id, e.name)
	if errors.Is(err, errStranger) {
		d.noteUnowned(e)
		return
	}
	d.engine.mu.Lock()
	defer d.engine.mu.Unlock()
	switch {
	case e.out:
	case errors.Is(err, fs.ErrPermission):
		e.bar(err)
	case err == nil:
		e.barred = nil
		e.owner = p.owner().String()
		e.queue.identify(e, p.owner().Rule)
		d.update(e.queue)
	}
}

// peer returns the owner of a ticket.
func (d *directory) peer(id fileID, name string) (*peer, error) {
	if p := d.peers[id]; p != nil {
		return p, nil
	}
	probe, err := d.sys.probe(name)
	if err != nil {
		d.complainAbout(name, err)
		return nil, err
	}
	if probe.id() != id {
		probe.close()
		return nil, fs.ErrNotExist // replaced in between
	}
	p := &peer{ownerProbe: probe, name: name}
	d.addPeer(id, p)
	return p, nil
}

func (d *directory) addPeer(id fileID, p *peer) {
	d.peers[id] = p
	if p.keepsLedger() {
		d.ledgers = append(d.ledgers, p)
	}
}

func (d *directory) removePeer(id fileID) {
	p := d.peers[id]
	delete(d.peers, id)
	d.ledgers = slices.DeleteFunc(d.ledgers, func(other *peer) bool { return other == p })
	p.close()
}

// buryDead takes out the tickets of all owners that have died.
func (d *directory) buryDead() {
	for id := range d.peers {
		d.buryIfDead(id)
	}
}

// buryClosed buries an owner whose file was closed. We may hear of that a moment
// before its lock is free.
func (d *directory) buryClosed(name string) {
	for id, p := range d.peers {
		if p.name != name {
			continue
		}
		for range deathRetries {
			if d.buryIfDead(id); d.peers[id] == nil {
				break
			}
			time.Sleep(deathPause)
		}
	}
}

func (d *directory) buryIfDead(id fileID) {
	p := d.peers[id]
	dead, err := p.dead()
	if err != nil {
		d.complainAbout(p.name, err)
	}
	if !dead || err != nil {
		return
	}
	taken := 0
	for _, e := range d.foreign(func(*ticket) bool { return true }) {
		// The name must still be the dead owner's file: numbers are never
		// used twice, but what we know of the name may be old.
		now, err := d.sys.identify(e.name)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, errNotOurs), err == nil && now != id:
			continue
		case err != nil:
			d.complainAbout(e.name, err)
			return // the tick comes back to it
		}
		d.removeFile(e.name)
		d.engine.mu.Lock()
		d.drop(e)
		d.engine.mu.Unlock()
		taken++
	}
	if now, err := d.sys.identify(p.name); err == nil && now == id {
		d.removeFile(p.name)
	}
	if taken > 0 {
		d.engine.log.Warn("a process ended without leaving its queues; its tickets are taken out",
			"path", d.engine.path, "owner", p.owner().String(), "tickets", taken)
	}
	d.removePeer(id)
	d.settleAllMissing()
}

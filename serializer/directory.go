package serializer

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// directory is a lock directory while the engine works in it: from the first
// arrival until a while after the last, or until it is replaced.
type directory struct {
	engine *File
	sys    lockDir
	nudge  chan struct{} // wakes the keeper
	done   chan struct{} // closed when the keeper has ended

	// Guarded by engine.mu.
	lines     map[string]*line
	files     map[string]*entry // by name; ours stay until we hear that the file is gone
	owned     int               // tickets of this process
	users     int               // calls under way that need sys
	blocked   int               // lines in which one of ours waits for another process
	leftovers []string          // files that could not be removed
	others    bool              // another process gave out a ticket since we wrote down the last number
	looks     uint64            // how often the directory was looked at
	retired   bool
	parted    bool // retired, and all whose tickets are still out are known
	idleSince time.Time

	// observing orders those who look at the directory. It guards the rest.
	observing sync.Mutex
	found     findings
	peers     map[fileID]*peer
	surveyed  bool // the first look is done
	complain  time.Time
}

// findings are what a look at the directory leaves to be done.
type findings struct {
	owners    []string // owner files that appeared
	unknown   []*entry // tickets whose rule, or right to be here, is not known
	evictions []string // markers that appeared
	missing   []*place // tickets of ours whose file somebody removed
	closed    []string // owner files that their owners closed
}

// peer is another process, or one of its owner files.
type peer struct {
	ownerProbe
	name string // of the owner file
}

func newDirectory(f *File, sys lockDir) *directory {
	return &directory{
		engine:    f,
		sys:       sys,
		nudge:     make(chan struct{}, 1),
		done:      make(chan struct{}),
		lines:     make(map[string]*line),
		files:     make(map[string]*entry),
		others:    true,
		idleSince: time.Now(),
		peers:     make(map[fileID]*peer),
	}
}

// wake makes the keeper look around.
func (d *directory) wake() {
	select {
	case d.nudge <- struct{}{}:
	default:
	}
}

// lastStamp is the number after which a batch's tickets are to be numbered: the
// greatest ever given out. The caller holds the guard and has observed.
func (d *directory) lastStamp(batch []*place) (uint64, error) {
	d.engine.mu.Lock()
	others, last := d.others, d.engine.last
	d.engine.mu.Unlock()
	if !others && d.sys.notifies() {
		return last, nil
	}
	recorded, err := d.sys.last()
	if err != nil {
		return 0, err
	}
	if recorded >= minStamp && recorded < maxStamp {
		return d.raise(batch, max(last, recorded)), nil
	}
	return max(last, d.greatest()), nil
}

func (d *directory) greatest() (stamp uint64) {
	d.engine.mu.Lock()
	defer d.engine.mu.Unlock()
	for _, e := range d.files {
		stamp = max(stamp, e.Stamp)
	}
	return stamp
}

// raise returns last, or more if somebody put a smaller number into the guard
// file than tickets in the batch's lines have: before those, a new one would be
// let in. Strangers' files do not count, whatever their numbers are.
func (d *directory) raise(batch []*place, last uint64) uint64 {
	later := d.later(batch, last)
	if later == nil {
		return last
	}
	d.observing.Lock()
	defer d.observing.Unlock()
	for _, e := range later {
		if e.waiter == nil && !e.known {
			d.identify(e)
		}
		if e.waiter != nil || e.known {
			last = max(last, e.Stamp)
		}
	}
	return last
}

// later lists tickets in the batch's lines that have greater numbers.
func (d *directory) later(batch []*place, last uint64) (entries []*entry) {
	d.engine.mu.Lock()
	defer d.engine.mu.Unlock()
	for _, p := range batch {
		l := d.lines[p.Prefix]
		if l == nil {
			continue
		}
		for e := l.tail; e != nil && e.Stamp > last; e = e.prev {
			entries = append(entries, e)
		}
	}
	return entries
}

// record writes down the last number that is being given out.
func (d *directory) record(last uint64) error {
	err := d.sys.setLast(last)
	d.engine.mu.Lock()
	defer d.engine.mu.Unlock()
	d.others = err != nil
	d.engine.last = max(d.engine.last, last)
	return err
}

// join puts a batch of arrivals into their lines. It returns those that got a
// number, and the last number.
func (d *directory) join(batch []*place, last uint64) ([]*place, uint64, error) {
	f := d.engine
	f.mu.Lock()
	defer f.mu.Unlock()
	if d.retired {
		return nil, last, errReplaced
	}
	joined := make([]*place, 0, len(batch))
	for _, p := range batch {
		if p.givenUp || p.out {
			continue
		}
		l := d.line(p.Prefix)
		p.position = l.length
		if p.max > 0 && l.waiting() >= p.max {
			p.refuse(ErrFull)
			d.update(l)
			continue
		}
		stamp := d.number(p, last)
		if stamp > maxStamp {
			p.refuse(&StorageError{"numbering tickets in", f.path,
				fmt.Errorf("the clock or the last number, %d, is beyond the year 2286", last)})
			d.update(l)
			continue
		}
		last = stamp
		p.dir = d
		p.seen = d.looks
		d.files[p.name] = &p.entry
		d.owned++
		l.insert(&p.entry)
		d.update(l)
		joined = append(joined, p)
	}
	return joined, last, nil
}

// number gives an arrival its number and name. A stranger may have a file of
// that name already.
func (d *directory) number(p *place, last uint64) (stamp uint64) {
	stamp = nextStamp(d.engine.clock(), last)
	for ; stamp <= maxStamp; stamp++ {
		p.Stamp = stamp
		p.name = p.Name()
		if d.files[p.name] == nil {
			break
		}
	}
	return stamp
}

// line returns the line of a queue, for an insertion.
func (d *directory) line(prefix string) *line {
	l := d.lines[prefix]
	if l == nil {
		l = &line{prefix: prefix}
		d.lines[prefix] = l
	}
	return l
}

// update draws the consequences of a change in a line: it lets in who may
// enter, and forgets the line if it is empty.
func (d *directory) update(l *line) {
	if !d.retired {
		l.advance(grantLinked)
	}
	if blocked := l.blockedByOthers(); blocked != l.blocked {
		l.blocked = blocked
		if blocked {
			d.blocked++
			d.wake()
		} else {
			d.blocked--
		}
	}
	if l.length == 0 {
		delete(d.lines, l.prefix)
	}
}

// grantLinked lets a ticket of ours in, unless its file is still being made:
// then linked does.
func grantLinked(e *entry) {
	if e.linked {
		e.grant()
	}
}

// linked notes that the file of a ticket was made, or not.
func (d *directory) linked(p *place, err error) {
	f := d.engine
	f.mu.Lock()
	switch {
	case p.out: // refused meanwhile
		f.mu.Unlock()
		d.removeFile(p.name)
	case err != nil:
		d.drop(&p.entry)
		p.refuse(err)
		f.mu.Unlock()
		if !errors.Is(err, fs.ErrExist) { // else it is somebody else's
			d.removeFile(p.name)
		}
	case p.givenUp:
		p.linked = true
		f.mu.Unlock()
		f.leave(p)
	default:
		p.linked = true
		p.seen = d.looks
		if p.admitted {
			p.grant()
		}
		f.mu.Unlock()
	}
}

// dismiss refuses tickets whose files were not made.
func (d *directory) dismiss(joined []*place, err error) {
	for _, p := range joined {
		d.linked(p, err)
	}
}

// dismissWaiting refuses all of ours that are not inside, and returns the names
// of their files. The caller holds engine.mu.
func (d *directory) dismissWaiting(err error) (files []string) {
	for _, l := range d.lines {
		for e := l.head; e != nil; {
			next := e.next
			if e.waiter != nil && !(e.admitted && e.linked) {
				d.drop(e)
				e.refuse(err)
				files = append(files, e.name)
			}
			e = next
		}
	}
	return files
}

// takeRevokes returns the callbacks of ours that are inside. The caller holds
// engine.mu.
func (d *directory) takeRevokes() (revokes []func(error)) {
	for _, l := range d.lines {
		for e := l.head; e != nil; e = e.next {
			if e.waiter == nil {
				continue
			}
			if revoke := e.takeRevoke(); revoke != nil {
				revokes = append(revokes, revoke)
			}
		}
	}
	return revokes
}

// drop takes a ticket out of its line and lets the next in. The caller holds
// engine.mu.
func (d *directory) drop(e *entry) {
	if e.out {
		return
	}
	e.out = true
	if e.waiter != nil {
		d.owned--
		d.idleSince = time.Now()
	}
	e.line.remove(e)
	d.update(e.line)
}

// removeFile removes a file of ours; the keeper tries again if that fails, for
// others wait for it.
func (d *directory) removeFile(name string) {
	err := d.sys.remove(name)
	if err == nil {
		return
	}
	d.engine.log.Error("a lock file could not be removed; trying again", "path", filepath.Join(d.engine.path, name), "error", err)
	d.engine.mu.Lock()
	defer d.engine.mu.Unlock()
	d.leftovers = append(d.leftovers, name)
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
	d.looks++
	f.mu.Unlock()
	complete, err := d.sys.changes(func(kind change, name []byte) {
		f.mu.Lock()
		defer f.mu.Unlock()
		d.note(kind, name)
	})
	if err != nil {
		return err
	}
	if complete {
		d.sweep()
		f.mu.Lock()
		d.others = true // whose tickets came and went unheard
		f.mu.Unlock()
	}
	d.followUp(guarded)
	d.surveyed = true
	return nil
}

// note enters one change in the lines. The caller holds engine.mu.
func (d *directory) note(kind change, name []byte) {
	e := d.files[string(name)]
	switch kind {
	case appeared:
		if e != nil {
			e.seen = d.looks
			return
		}
		d.noteNew(string(name))
	case vanished:
		if e != nil {
			d.noteGone(e)
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
	e := &entry{Ticket: t, name: name, seen: d.looks}
	d.files[name] = e
	d.others = true
	l := d.line(t.Prefix)
	l.insert(e)
	d.update(l)
	if d.sys.checksUsers() || l.special > 0 {
		d.found.unknown = append(d.found.unknown, e)
	}
}

func (d *directory) noteGone(e *entry) {
	delete(d.files, e.name)
	switch {
	case e.out:
	case e.waiter == nil:
		delete(d.engine.strangers, e.name)
		d.drop(e)
	case e.linked:
		d.found.missing = append(d.found.missing, e.place)
	}
}

// sweep takes out the tickets that a complete look did not show.
func (d *directory) sweep() {
	f := d.engine
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range d.files {
		if e.seen < d.looks && (e.waiter == nil || e.linked || e.out) {
			d.noteGone(e)
		}
	}
}

// followUp does what a look has left to be done.
func (d *directory) followUp(guarded bool) {
	found := d.found
	if found.owners == nil && found.unknown == nil && found.evictions == nil && found.missing == nil && found.closed == nil {
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
	for _, name := range found.closed {
		d.buryClosed(name)
	}
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
		d.peers[id] = &peer{ownerProbe: probe, name: name}
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
func (d *directory) identifyEntries(entries []*entry) {
	for _, e := range entries {
		d.identify(e)
	}
}

// identifyAll does so for all tickets of others.
func (d *directory) identifyAll() {
	d.observing.Lock()
	defer d.observing.Unlock()
	d.identifyEntries(d.foreign(func(e *entry) bool { return !e.known }))
}

// foreign lists the tickets of others that are in line and wanted.
func (d *directory) foreign(wanted func(*entry) bool) (entries []*entry) {
	d.engine.mu.Lock()
	defer d.engine.mu.Unlock()
	for _, e := range d.files {
		if e.waiter == nil && !e.out && wanted(e) {
			entries = append(entries, e)
		}
	}
	return entries
}

// identify finds out whose ticket e is. Until it is known, the ticket counts as
// one that wants to be alone.
func (d *directory) identify(e *entry) {
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
	f := d.engine
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case e.out:
	case errors.Is(err, errStranger):
		e.owner = "not a ticket of Orderly"
		if _, ok := f.strangers[e.name]; !ok {
			f.strangers[e.name] = time.Now()
		}
	case err == nil:
		e.known = true
		e.owner = p.owner().String()
		e.line.setRule(e, p.owner().Rule)
		d.update(e.line)
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
	d.peers[id] = p
	return p, nil
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
	for _, e := range d.foreign(func(*entry) bool { return true }) {
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
	p.close()
	delete(d.peers, id)
}

// restore deals with a ticket of ours whose file somebody removed. One that
// waits is out, as if evicted: its place is gone for all other processes. One
// that is inside gets its file back, so that nobody else enters.
func (d *directory) restore(p *place) {
	f := d.engine
	f.mu.Lock()
	if p.out {
		f.mu.Unlock()
		return
	}
	inside := p.admitted
	if !inside {
		d.drop(&p.entry)
		p.refuse(fmt.Errorf("%w: its lock file was removed", ErrEvicted))
	} else {
		d.files[p.name] = &p.entry
		p.seen = d.looks
	}
	f.mu.Unlock()
	path := filepath.Join(f.path, p.name)
	if !inside {
		f.log.Warn("the lock file of a waiting request was removed; it is refused", "path", path)
		return
	}
	f.log.Warn("the lock file of a request that is inside was removed; it is put back", "path", path)
	if err := d.sys.create(p.name, p.rule); err != nil && !errors.Is(err, fs.ErrExist) {
		f.log.Error("putting back a lock file failed", "path", path, "error", err)
	}
	if p.gone(f) {
		d.removeFile(p.name)
	}
}

// gone reports whether the place has been left.
func (p *place) gone(f *File) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return p.out
}

// evict takes a ticket of ours out, or tells the one inside to go.
func (d *directory) evict(p *place) {
	f := d.engine
	f.mu.Lock()
	if p.out {
		f.mu.Unlock()
		return
	}
	if p.admitted {
		revoke := p.takeRevoke()
		f.mu.Unlock()
		if revoke != nil {
			revoke(ErrEvicted)
		}
		return
	}
	d.drop(&p.entry)
	p.refuse(ErrEvicted)
	f.mu.Unlock()
	d.removeFile(p.name)
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
		d.evict(e.place)
	case !others && !d.surveyed:
		d.removeFile(marker) // of a ticket that is long gone
	}
}

// holder finds a ticket of ours by its number, and whether others have it.
func (d *directory) holder(stamp uint64) (e *entry, others bool) {
	d.engine.mu.Lock()
	defer d.engine.mu.Unlock()
	for _, e := range d.files {
		if e.Stamp != stamp || e.out {
			continue
		}
		if e.waiter != nil {
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

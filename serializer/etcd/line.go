package etcd

import (
	"cmp"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// entry is one ticket in a line.
type entry struct {
	key        string
	rev        int64 // at which the key was created: the ticket's number
	rule       serializer.Rule
	prev, next *entry
	admitted   bool   // by the rule
	place      *place // nil for a ticket of another process
}

// line is what a process knows of one queue: its tickets in order, and how far
// down they may enter.
//
// All tickets created up to the revision covered are known; later ones of this
// process may be in the line, too, but are not let in before the line covers
// them. Tickets only vanish from what is covered, so what the line does not
// know can only make it wait too long, never too short.
//
// The tickets that may be inside are always the first ones, for whether one may
// enter depends only on those before it. Everything here belongs to the
// engine's lock, but for changed.
type line struct {
	session *session
	queue   string
	prefix  string // of the tickets' keys

	head, tail *entry
	next       *entry // the first that is not admitted
	first      *entry // the first of ours that is not admitted
	foreign    map[string]*entry
	length     int
	admitted   int   // before the border next
	shared     int   // before the border, readers
	waiting    int   // of ours, not admitted
	uncovered  int   // of those, later than covered
	making     int   // of ours, asked for and not answered yet
	covered    int64 // revision

	missed int64 // the last deletion heard of a ticket that the line does not know
	unsure bool  // such a ticket may have come into the line after that
	border int64 // one with this number was inside alone: no ticket of others up to here stands
	stale  int64 // the revision of something after which the queue must be looked at

	slots   uint64   // how many keys of ours were ever in use at a time
	free    []uint64 // of those, not in use now
	leaving int      // being deleted

	doubt   time.Time // until then, tickets of ours that nobody knows of may turn up
	idle    time.Time // when the last of ours left
	changed chan struct{}
}

func (s *session) line(queue string) *line {
	l := s.lines[queue]
	if l == nil {
		l = &line{
			session: s,
			queue:   queue,
			prefix:  s.engine.keys.queue(queue),
			foreign: make(map[string]*entry),
			changed: make(chan struct{}, 1),
		}
		s.lines[queue] = l
		go l.keep()
	}
	return l
}

// slot returns a number for the key of another ticket. Numbers are used again:
// etcd keeps a deleted key in its index until the next compaction, and whatever
// reads the queue goes through all that were ever used.
func (l *line) slot() uint64 {
	if n := len(l.free); n > 0 {
		slot := l.free[n-1]
		l.free = l.free[:n-1]
		return slot
	}
	l.slots++
	return l.slots
}

// empty reports whether no ticket of ours is in the line or on its way.
func (l *line) empty() bool { return l.making == 0 && l.length == len(l.foreign) }

// insert puts e before another entry, or at the end where that is nil.
func (l *line) insert(e, before *entry) {
	e.next = before
	if before == nil {
		e.prev, l.tail = l.tail, e
	} else {
		e.prev, before.prev = before.prev, e
	}
	if e.prev == nil {
		l.head = e
	} else {
		e.prev.next = e
	}
	l.length++
	if l.next == before {
		l.next = e
	}
	if e.place == nil {
		l.foreign[e.key] = e
		return
	}
	l.waiting++
	if e.rev > l.covered {
		l.uncovered++
	}
	if l.first == nil || e.rev < l.first.rev {
		l.first = e
	}
}

// remove takes e out.
func (l *line) remove(e *entry) {
	if l.next == e {
		l.next = e.next
	}
	if e.admitted {
		l.admitted--
		l.shared -= readers(e)
	} else if e.place != nil {
		l.settled(e)
	}
	if l.foreign[e.key] == e {
		delete(l.foreign, e.key)
	}
	if e.prev == nil {
		l.head = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		l.tail = e.prev
	} else {
		e.next.prev = e.prev
	}
	l.length--
}

// settled notes that one of ours no longer waits.
func (l *line) settled(e *entry) {
	l.waiting--
	if e.rev > l.covered {
		l.uncovered--
	}
	if l.first != e {
		return
	}
	for l.first = e.next; l.first != nil && (l.first.place == nil || l.first.admitted); {
		l.first = l.first.next
	}
}

// join puts a place of ours into the line, whose ticket turned out to exist.
func (l *line) join(p *place, rev int64) {
	var before *entry
	for e := l.tail; e != nil && e.rev > rev; e = e.prev {
		before = e
	}
	l.joinBefore(p, rev, before)
}

func (l *line) joinBefore(p *place, rev int64, before *entry) {
	p.rev, p.joined = rev, true
	l.insert(&p.entry, before)
	if p.arrival.Joined != nil {
		p.arrival.Joined()
	}
}

// ahead counts the tickets before e.
func (l *line) ahead(e *entry) int {
	n := l.length - 1
	for later := e.next; later != nil; later = later.next {
		n--
	}
	return n
}

// advance moves the border past all that may now be inside, and tells those of
// this process.
func (l *line) advance() {
	if !l.session.stands() {
		return
	}
	for l.next != nil && l.next.rev <= l.covered && l.next.rule.Admits(l.admitted, l.shared) {
		e := l.next
		l.next = e.next
		e.admitted = true
		l.admitted++
		l.shared += readers(e)
		if e.place != nil {
			l.settled(e)
			e.place.grant()
		}
	}
}

// update draws the consequences of a change.
func (l *line) update() {
	l.advance()
	if l.empty() {
		l.idle = time.Now()
	}
	l.signal()
}

// signal wakes the keeper.
func (l *line) signal() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// apply brings the line to what a look at the whole queue has shown: the
// tickets that existed at a revision.
func (l *line) apply(tickets []*mvccpb.KeyValue, rev int64) {
	l.looked(rev)
	l.unsure = l.unsure && rev < l.missed
	if rev <= l.covered {
		return
	}
	slices.SortFunc(tickets, func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.CreateRevision, b.CreateRevision) })
	at, position := l.head, 0
	for _, kv := range tickets {
		at = l.skipGone(at, kv.CreateRevision)
		if at != nil && at.rev == kv.CreateRevision {
			at = at.next
			position++
			continue
		}
		if l.meet(kv, rev, at, position) {
			position++
		}
	}
	l.skipGone(at, rev+1)
	l.covered = rev
	l.uncovered = 0
	for e := l.tail; e != nil && e.rev > rev; e = e.prev {
		if e.place != nil && !e.admitted {
			l.uncovered++
		}
	}
}

// looked notes that those before our first one are known as of a revision.
func (l *line) looked(rev int64) {
	if rev >= l.stale {
		l.stale = 0
	}
}

// skipGone takes out the entries from at on that are older than rev: the look
// did not show them. It returns the first that is not.
func (l *line) skipGone(at *entry, rev int64) *entry {
	for at != nil && at.rev < rev {
		next := at.next
		l.gone(at)
		at = next
	}
	return at
}

// meet enters a ticket that the line did not know, seen at a revision. It
// reports whether it counts.
func (l *line) meet(kv *mvccpb.KeyValue, rev int64, before *entry, position int) bool {
	key, s := string(kv.Key), l.session
	_, lease, ok := s.engine.keys.parseTicket(key)
	if !ok {
		return false
	}
	if lease != s.id && kv.CreateRevision <= l.border {
		return false // the look is older than what we have heard
	}
	if lease != s.id {
		l.insert(&entry{key: key, rev: kv.CreateRevision, rule: parseRecord(kv.Value).rule()}, before)
		l.unsure = l.unsure || rev < l.missed
		return true
	}
	p := s.places[key]
	switch {
	case p == nil: // it has left, or was given up before we heard of it
		s.remove(deletion{line: l, key: key, rev: kv.CreateRevision})
		return false
	case p.joined || p.refused || p.vanished || kv.CreateRevision <= p.after:
		return false
	}
	// The look has overtaken the answer that tells of the ticket.
	p.position = position
	l.joinBefore(p, kv.CreateRevision, before)
	return true
}

// heard notes that a key was deleted. The key may have been used again before
// or after that, so only a ticket that is older than the deletion has gone.
func (l *line) heard(key string, deleted int64) {
	e := l.foreign[key]
	if p := l.session.places[key]; p != nil && p.joined {
		e = &p.entry
	}
	switch {
	case e == nil:
		l.missed = max(l.missed, deleted)
	case e.rev < deleted:
		l.gone(e)
	}
}

// passed notes that one was inside alone, and has left: all others before it
// are gone, too.
func (l *line) passed(rev int64) {
	l.border = max(l.border, rev)
	for e := l.head; e != nil && e.rev <= rev; {
		next := e.next
		l.gone(e)
		e = next
	}
}

// gone notes that a ticket no longer exists. One of ours has been deleted by
// somebody else, or with the lease: if it waits, it is out, for its place is
// gone for all other processes. If it is inside, it must go, but keeps its
// place among ours.
func (l *line) gone(e *entry) {
	p := e.place
	if p == nil {
		l.remove(e)
		return
	}
	if p.vanished {
		return
	}
	p.vanished = true
	if p.granted {
		if revoke := p.takeRevoke(); revoke != nil {
			go revoke(serializer.ErrLost)
		}
		return
	}
	l.remove(e)
	s := l.session
	s.missing = append(s.missing, p)
	if !s.searching {
		s.searching = true
		go s.search()
	}
}

func readers(e *entry) int {
	if e.rule.Shared {
		return 1
	}
	return 0
}

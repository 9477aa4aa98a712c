package etcd

import (
	"cmp"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// entry is one ticket in a queue.
type entry struct {
	key        string
	rev        int64 // at which the key was created: the ticket's number
	rule       serializer.Rule
	prev, next *entry
	admitted   bool    // by the rule
	waiter     *waiter // nil for a remote ticket
}

// queue is what this process knows of one queue: its tickets in order, and how
// many of them may be inside.
//
// All tickets created up to the revision covered are known. Later ones of this
// process may be listed, too, but are not admitted before they are covered.
// Tickets only vanish from what is covered. So an event that is missing makes a
// waiter wait too long, never too short.
//
// Admitted tickets are always the first ones, because admission depends only on
// the tickets before. The engine's lock guards everything here but changed.
type queue struct {
	session *session
	name    string
	prefix  string // of the tickets' keys

	head, tail *entry
	next       *entry // the first that is not admitted
	first      *entry // the first of ours that is not admitted
	remote     map[string]*entry
	length     int
	admitted   int   // before next
	shared     int   // of those, readers
	waiting    int   // ours, not admitted
	uncovered  int   // of those, later than covered
	making     int   // ours, requested and not answered yet
	covered    int64 // revision

	missed int64 // the last reported deletion of an unknown ticket
	unsure bool  // such a ticket may have been listed after that
	border int64 // a ticket with this number was inside alone: no remote ticket up to here stands
	stale  int64 // after the event at this revision the queue must be read

	slots   uint64   // the most keys of ours that were ever in use at a time
	free    []uint64 // of those, not in use now
	leaving int      // being deleted

	doubt   time.Time // until then, late requests may make tickets of ours that no caller waits for
	idle    time.Time // since the last of ours left
	changed chan struct{}
}

func (s *session) queueLocked(name string) *queue {
	q := s.queues[name]
	if q == nil {
		q = &queue{
			session: s,
			name:    name,
			prefix:  s.engine.keys.queue(name),
			remote:  make(map[string]*entry),
			changed: make(chan struct{}, 1),
		}
		s.queues[name] = q
		go q.follow()
	}
	return q
}

// slot returns a number for the key of another ticket. Numbers are used again:
// etcd keeps a deleted key in its index until the next compaction, and a read of
// the queue goes through all keys in the index.
func (q *queue) slot() uint64 {
	if n := len(q.free); n > 0 {
		slot := q.free[n-1]
		q.free = q.free[:n-1]
		return slot
	}
	q.slots++
	return q.slots
}

// empty reports whether no ticket of ours is listed or requested.
func (q *queue) empty() bool { return q.making == 0 && q.length == len(q.remote) }

// insert puts e before another entry, or at the end if that is nil.
func (q *queue) insert(e, before *entry) {
	e.next = before
	if before == nil {
		e.prev, q.tail = q.tail, e
	} else {
		e.prev, before.prev = before.prev, e
	}
	if e.prev == nil {
		q.head = e
	} else {
		e.prev.next = e
	}
	q.length++
	if q.next == before {
		q.next = e
	}
	if e.waiter == nil {
		q.remote[e.key] = e
		return
	}
	q.waiting++
	if e.rev > q.covered {
		q.uncovered++
	}
	if q.first == nil || e.rev < q.first.rev {
		q.first = e
	}
}

// remove takes e out.
func (q *queue) remove(e *entry) {
	if q.next == e {
		q.next = e.next
	}
	if e.admitted {
		q.admitted--
		q.shared -= readers(e)
	} else if e.waiter != nil {
		q.settled(e)
	}
	if q.remote[e.key] == e {
		delete(q.remote, e.key)
	}
	if e.prev == nil {
		q.head = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		q.tail = e.prev
	} else {
		e.next.prev = e.prev
	}
	q.length--
}

// settled notes that a ticket of ours no longer waits.
func (q *queue) settled(e *entry) {
	q.waiting--
	if e.rev > q.covered {
		q.uncovered--
	}
	if q.first != e {
		return
	}
	for q.first = e.next; q.first != nil && (q.first.waiter == nil || q.first.admitted); {
		q.first = q.first.next
	}
}

// join lists a ticket of ours that is now known to exist.
func (q *queue) join(w *waiter, rev int64) {
	var before *entry
	for e := q.tail; e != nil && e.rev > rev; e = e.prev {
		before = e
	}
	q.joinBefore(w, rev, before)
}

func (q *queue) joinBefore(w *waiter, rev int64, before *entry) {
	w.rev, w.joined = rev, true
	q.insert(&w.entry, before)
	if w.arrival.Joined != nil {
		w.arrival.Joined()
	}
}

// ahead counts the tickets before e, from the end: there it usually stands.
func (q *queue) ahead(e *entry) int {
	n := q.length - 1
	for later := e.next; later != nil; later = later.next {
		n--
	}
	return n
}

// advance admits the next tickets for as long as the rule allows it, and grants
// the turn to those of this process.
func (q *queue) advance() {
	if !q.session.standsLocked() {
		return
	}
	for q.next != nil && q.next.rev <= q.covered && q.next.rule.Admits(q.admitted, q.shared) {
		e := q.next
		q.next = e.next
		e.admitted = true
		q.admitted++
		q.shared += readers(e)
		if e.waiter != nil {
			q.settled(e)
			e.waiter.grant()
		}
	}
}

// update admits whom a change lets in, and wakes the watcher.
func (q *queue) update() {
	q.advance()
	if q.empty() {
		q.idle = time.Now()
	}
	q.signal()
}

// signal wakes the watcher.
func (q *queue) signal() {
	select {
	case q.changed <- struct{}{}:
	default:
	}
}

// apply takes in a read of the whole queue: the tickets that existed at a
// revision.
func (q *queue) apply(tickets []*mvccpb.KeyValue, rev int64) {
	q.synced(rev)
	q.unsure = q.unsure && rev < q.missed
	if rev <= q.covered {
		return
	}
	slices.SortFunc(tickets, func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.CreateRevision, b.CreateRevision) })
	at, position := q.head, 0
	for _, kv := range tickets {
		at = q.skipGone(at, kv.CreateRevision)
		if at != nil && at.rev == kv.CreateRevision {
			at = at.next
			position++
			continue
		}
		if q.meet(kv, rev, at, position) {
			position++
		}
	}
	q.skipGone(at, rev+1)
	q.covered = rev
	q.uncovered = 0
	for e := q.tail; e != nil && e.rev > rev; e = e.prev {
		if e.waiter != nil && !e.admitted {
			q.uncovered++
		}
	}
}

// synced notes that the tickets before our first waiter are known as of a
// revision.
func (q *queue) synced(rev int64) {
	if rev >= q.stale {
		q.stale = 0
	}
}

// skipGone takes out the entries from at on that are older than rev: the read
// did not show them. It returns the first entry that is not older.
func (q *queue) skipGone(at *entry, rev int64) *entry {
	for at != nil && at.rev < rev {
		next := at.next
		q.gone(at)
		at = next
	}
	return at
}

// meet takes in an unlisted ticket that a read at revision rev has shown. It
// reports whether the ticket counts.
func (q *queue) meet(kv *mvccpb.KeyValue, rev int64, before *entry, position int) bool {
	key, s := string(kv.Key), q.session
	_, lease, ok := s.engine.keys.parseTicket(key)
	if !ok {
		return false
	}
	if lease != s.id && kv.CreateRevision <= q.border {
		return false // the read is older than an event that we know
	}
	if lease != s.id {
		q.insert(&entry{key: key, rev: kv.CreateRevision, rule: parseRecord(kv.Value).rule()}, before)
		q.unsure = q.unsure || rev < q.missed
		return true
	}
	w := s.waiters[key]
	switch {
	case w == nil: // it has left, or its caller gave up before the answer came
		s.deleteLocked(deletion{queue: q, key: key, rev: kv.CreateRevision})
		return false
	case w.joined || w.refused || w.vanished || kv.CreateRevision <= w.after:
		return false
	}
	// The read has overtaken the answer to the ticket's request.
	w.position = position
	q.joinBefore(w, kv.CreateRevision, before)
	return true
}

// heard takes in the deletion of a key. The key may have been used again, before
// or after, so only a ticket that is older than the deletion has gone.
func (q *queue) heard(key string, deleted int64) {
	e := q.remote[key]
	if w := q.session.waiters[key]; w != nil && w.joined {
		e = &w.entry
	}
	switch {
	case e == nil:
		q.missed = max(q.missed, deleted)
	case e.rev < deleted:
		q.gone(e)
	}
}

// passed notes that a ticket was inside alone and has left: all before it are
// gone, too.
func (q *queue) passed(rev int64) {
	q.border = max(q.border, rev)
	for e := q.head; e != nil && e.rev <= rev; {
		next := e.next
		q.gone(e)
		e = next
	}
}

// gone notes that a ticket no longer exists. If it is ours, somebody else deleted
// it, or it went with the lease. A waiter has then lost its place. A holder is
// revoked, but keeps our other waiters out until it leaves.
func (q *queue) gone(e *entry) {
	w := e.waiter
	if w == nil {
		q.remove(e)
		return
	}
	if w.vanished {
		return
	}
	w.vanished = true
	if w.granted {
		if revoke := w.takeRevoke(); revoke != nil {
			go revoke(serializer.ErrLost)
		}
		return
	}
	q.remove(e)
	s := q.session
	s.missing = append(s.missing, w)
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

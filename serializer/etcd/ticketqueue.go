package etcd

import (
	"cmp"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/queue"
)

// ticketQueue is what this process knows of one queue: its tickets in order, and how
// many of them may be inside.
//
// All tickets created up to the revision covered are known. Later ones of this
// process may be listed, too, but are not admitted before they are covered.
// Tickets only vanish from what is covered. So an event that is missing makes a
// waiter wait too long, never too short.
//
// Admitted tickets are always the first ones, because admission depends only on
// the tickets before. The engine's lock guards everything here but changed.
type ticketQueue struct {
	session *session
	name    string
	prefix  string   // of the tickets' keys
	groups  []string // of our arrivals

	queue.Queue[*ticket]
	first     *ticket            // the first of ours that waits
	remote    map[string]*ticket // by key
	uncovered int                // of ours that wait, later than covered
	making    int                // of ours, requested and not answered yet
	covered   int64              // revision

	doomed int // remote tickets

	missed     int64 // the last reported deletion
	unsure     bool  // a ticket may have been listed since that had gone by then
	passedUpTo int64 // a ticket with this number was inside alone: no remote ticket up to here stands
	stale      int64 // after the event at this revision the queue must be read

	slots   uint64   // the most keys of ours that were ever in use at a time
	free    []uint64 // of those, not in use now
	leaving int      // being deleted

	doubt   time.Time // until then, late requests may make tickets of ours that no caller waits for
	idle    time.Time // since the last of ours left
	changed chan struct{}
}

func (s *session) queueLocked(name string) *ticketQueue {
	q := s.queues[name]
	if q == nil {
		q = &ticketQueue{
			session: s,
			name:    name,
			prefix:  s.engine.keys.queue(name),
			remote:  make(map[string]*ticket),
			changed: make(chan struct{}, 1),
		}
		s.queues[name] = q
		q.setPause()
		go q.follow()
	}
	return q
}

// slot returns a number for the key of another ticket. Numbers are used again:
// etcd keeps a deleted key in its index until the next compaction, and a read of
// the queue goes through all keys in the index.
func (q *ticketQueue) slot() uint64 {
	if n := len(q.free); n > 0 {
		slot := q.free[n-1]
		q.free = q.free[:n-1]
		return slot
	}
	q.slots++
	return q.slots
}

// empty reports whether no ticket of ours is listed or requested.
func (q *ticketQueue) empty() bool { return q.making == 0 && q.Local() == 0 }

// insert puts a ticket before another, or at the end if that is nil.
func (q *ticketQueue) insert(t, before *ticket) {
	q.InsertBefore(t, before)
	if !t.Local() {
		q.remote[t.key] = t
		return
	}
	if t.rev > q.covered {
		q.uncovered++
	}
	if q.first == nil || t.Before(q.first) {
		q.first = t
	}
}

// remove takes a ticket out.
func (q *ticketQueue) remove(t *ticket) {
	switch {
	case q.remote[t.key] == t:
		delete(q.remote, t.key)
		if t.doomed {
			q.doomed--
		}
	case t.Local() && !t.Admitted():
		q.settled(t)
	}
	q.Remove(t)
}

// settled notes that a ticket of ours no longer waits. It is still listed.
func (q *ticketQueue) settled(t *ticket) {
	if t.rev > q.covered {
		q.uncovered--
	}
	if q.first != t {
		return
	}
	for q.first = t.Next(); q.first != nil && !q.first.Local(); {
		q.first = q.first.Next()
	}
}

// join lists a ticket of ours that is now known to exist.
func (q *ticketQueue) join(t *ticket, rev int64) {
	q.joinBefore(t, rev, q.behind(rev))
}

// behind returns the first ticket with a greater number, or nil.
func (q *ticketQueue) behind(rev int64) (before *ticket) {
	for e := q.Last(); e != nil && e.rev > rev; e = e.Prev() {
		before = e
	}
	return before
}

func (q *ticketQueue) joinBefore(t *ticket, rev int64, before *ticket) {
	t.rev, t.joined = rev, true
	q.insert(t, before)
	if t.arrival.Joined != nil {
		t.arrival.Joined()
	}
}

// ahead counts the tickets before t, from the end: there it usually stands.
func (q *ticketQueue) ahead(t *ticket) int {
	n := q.Len() - 1
	for later := t.Next(); later != nil; later = later.Next() {
		n--
	}
	return n
}

// advance admits the next tickets for as long as the rule allows it, and grants
// the turn to those of this process. An engine that closes refuses one waiter after
// the other, and none of them may enter because one before it has gone.
func (q *ticketQueue) advance() {
	q.passInside()
	if q.session.engine.closed || !q.session.standsLocked() {
		return
	}
	for next := q.Border(); next != nil && next.rev <= q.covered && q.Admit() != nil; next = q.Border() {
		if next.Local() {
			q.settled(next)
			next.grant()
		}
	}
}

// supersede refuses our first waiter with more behind it than it allows. The queue is
// then updated again, for there may be another. What is before the waiter must be known.
func (q *ticketQueue) supersede() {
	t := q.Superseded(q.doomed)
	if t == nil || t.rev > q.covered || q.session.engine.closed || !q.session.standsLocked() {
		return
	}
	t.refuse(serializer.ErrSuperseded)
	q.session.dropLocked(t)
}

// update admits whom a change lets in, refuses who is superseded, and wakes the
// watcher.
func (q *ticketQueue) update() {
	q.advance()
	q.supersede()
	if q.empty() {
		q.idle = time.Now()
	}
	q.signal()
}

// signal wakes the watcher.
func (q *ticketQueue) signal() {
	select {
	case q.changed <- struct{}{}:
	default:
	}
}

// apply takes in a read of the whole queue: the tickets that existed at a
// revision.
func (q *ticketQueue) apply(tickets []*mvccpb.KeyValue, rev int64) {
	q.synced(rev)
	q.unsure = q.unsure && rev < q.missed
	if rev <= q.covered {
		return
	}
	slices.SortFunc(tickets, func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.CreateRevision, b.CreateRevision) })
	at, position := q.First(), 0
	for _, kv := range tickets {
		at = q.skipGone(at, kv.CreateRevision)
		if at != nil && at.rev == kv.CreateRevision {
			at.noteInside(kv)
			at = at.Next()
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
	for t := q.Last(); t != nil && t.rev > rev; t = t.Prev() {
		if t.Local() && !t.Admitted() {
			q.uncovered++
		}
	}
}

// synced notes that the tickets before our first waiter are known as of a
// revision.
func (q *ticketQueue) synced(rev int64) {
	if rev >= q.stale {
		q.stale = 0
	}
}

// skipGone takes out the tickets from at on that are older than rev: the read
// did not show them. It returns the first ticket that is not older.
func (q *ticketQueue) skipGone(at *ticket, rev int64) *ticket {
	for at != nil && at.rev < rev {
		next := at.Next()
		q.gone(at)
		at = next
	}
	return at
}

// meet takes in an unlisted ticket that a read at revision rev has shown. It
// reports whether the ticket counts.
func (q *ticketQueue) meet(kv *mvccpb.KeyValue, rev int64, before *ticket, position int) bool {
	key, s := string(kv.Key), q.session
	_, lease, ok := s.engine.keys.parseTicket(key)
	if !ok {
		return false
	}
	if lease != s.id && kv.CreateRevision <= q.passedUpTo {
		return false // the read is older than an event that we know
	}
	if lease != s.id {
		remote := &ticket{key: key, rev: kv.CreateRevision}
		q.read(remote, kv.Value)
		q.insert(remote, before)
		q.unsure = q.unsure || rev < q.missed
		return true
	}
	t := s.tickets[key]
	switch {
	case t == nil: // it has left, or its caller gave up before the answer came
		s.deleteLocked(deletion{queue: q, key: key, rev: kv.CreateRevision})
		return false
	case t.joined || t.refused || t.vanished || kv.CreateRevision <= t.after:
		return false
	}
	// The read has overtaken the answer to the ticket's request.
	t.position = position
	q.joinBefore(t, kv.CreateRevision, before)
	return true
}

// arrived takes in a ticket that a watch reports. It is listed, as ours are whose
// requests were answered, but it is not admitted before it is covered.
func (q *ticketQueue) arrived(kv *mvccpb.KeyValue) {
	key, rev := string(kv.Key), kv.CreateRevision
	_, lease, ok := q.session.engine.keys.parseTicket(key)
	if !ok || lease == q.session.id {
		return
	}
	if known := q.remote[key]; known != nil {
		if known.rev < rev { // its deletion was not reported
			q.stale = max(q.stale, rev)
		}
		known.noteInside(kv)
		return
	}
	if rev <= max(q.covered, q.passedUpTo) {
		return
	}
	t := &ticket{key: key, rev: rev}
	q.read(t, kv.Value)
	q.insert(t, q.behind(rev))
}

// read takes in what a remote ticket's value says, before the ticket is listed.
func (q *ticketQueue) read(t *ticket, value []byte) {
	r := parseRecord(value)
	t.Rule, t.inside = r.rule(), r.Inside
	if r.Max > 0 && q.Waiting() >= r.Max {
		t.doomed = true
		q.doomed++
	}
}

// noteInside notes that the owner of a remote ticket says that it is inside.
func (t *ticket) noteInside(kv *mvccpb.KeyValue) {
	if !t.Local() && !t.inside && t.rev == kv.CreateRevision && kv.ModRevision != kv.CreateRevision {
		t.inside = parseRecord(kv.Value).Inside
	}
}

// heard takes in the deletion of a key. The key may have been used again, before
// or after, so only a ticket that is older than the deletion has gone.
func (q *ticketQueue) heard(key string, deleted int64) {
	q.missed = max(q.missed, deleted)
	t := q.remote[key]
	if ours := q.session.tickets[key]; ours != nil && ours.joined {
		t = ours
	}
	if t != nil && t.rev < deleted {
		q.gone(t)
	}
}

// passed notes that a ticket was inside alone and has left: all before it are
// gone, too.
func (q *ticketQueue) passed(rev int64) {
	q.passedUpTo = max(q.passedUpTo, rev)
	q.skipGone(q.First(), rev+1)
}

// gone notes that a ticket no longer exists. If it is ours, somebody else deleted
// it, or it went with the lease. A waiter has then lost its place. A holder is
// revoked, but keeps our other waiters out until it leaves.
func (q *ticketQueue) gone(t *ticket) {
	if !t.Local() {
		q.remove(t)
		return
	}
	if t.vanished {
		return
	}
	t.vanished = true
	if t.granted {
		if revoke := t.takeRevoke(); revoke != nil {
			go revoke(serializer.ErrLost)
		}
		return
	}
	q.remove(t)
	s := q.session
	s.missing = append(s.missing, t)
	if !s.searching {
		s.searching = true
		go s.search()
	}
}

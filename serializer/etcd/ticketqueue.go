package etcd

import (
	"cmp"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/queue"
)

// ticketQueue is what this process knows about one queue: its tickets in order, and how
// many of them may be inside.
//
// All tickets created up to the revision covered are known. Later local tickets may be
// listed, too, but are not admitted until they are covered. Covered tickets can only
// vanish. So a missing event makes a waiter wait too long, never too short.
//
// Admitted tickets are always the first ones, because admission depends only on the
// tickets before. The engine's lock guards everything here but changed.
type ticketQueue struct {
	session *session
	name    string
	prefix  string   // of the tickets' keys
	groups  []string // of local arrivals

	queue.Queue[*ticket]
	first     *ticket            // the first local waiter
	remote    map[string]*ticket // by key
	uncovered int                // local waiters later than covered
	making    int                // local tickets that are requested and not answered yet
	covered   int64              // revision

	doomed int // number of doomed remote tickets

	missed     int64 // the revision of the last reported deletion
	unsure     bool  // a ticket that had already gone may have been listed after that
	passedUpTo int64 // a ticket with this number was inside alone: no remote ticket up to here exists
	stale      int64 // the revision of an event after which the queue must be read

	slots   uint64   // the greatest number of local keys ever in use at a time
	free    []uint64 // slots that are not in use now
	leaving int      // number of keys being deleted

	doubt   time.Time // until then, late requests may make local tickets without a caller
	idle    time.Time // when the last local ticket left
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

// slot returns a number for the key of another ticket. Numbers are reused: etcd keeps a
// deleted key in its index until the next compaction, and a read of the queue goes
// through all keys in the index.
func (q *ticketQueue) slot() uint64 {
	if n := len(q.free); n > 0 {
		slot := q.free[n-1]
		q.free = q.free[:n-1]
		return slot
	}
	q.slots++
	return q.slots
}

// empty reports whether no local ticket is listed or requested.
func (q *ticketQueue) empty() bool { return q.making == 0 && q.Local() == 0 }

// insert puts a ticket before another one, or at the end if that is nil.
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

// settled notes that a local ticket no longer waits. It is still listed.
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

// join lists a local ticket that is now known to exist.
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

// ahead counts the tickets before t. It searches from the end, because t is usually
// there.
func (q *ticketQueue) ahead(t *ticket) int {
	n := q.Len() - 1
	for later := t.Next(); later != nil; later = later.Next() {
		n--
	}
	return n
}

// advance admits the next tickets while the rule allows it, and grants the turn to local
// ones. A closing engine refuses its waiters one after the other. None of them may enter
// because the one before it has gone.
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

// supersede refuses the first local waiter with more waiters behind it than it allows.
// The queue is then updated again, because there may be another one. All tickets before
// the waiter must be known.
func (q *ticketQueue) supersede() {
	t := q.Superseded(q.doomed)
	if t == nil || t.rev > q.covered || q.session.engine.closed || !q.session.standsLocked() {
		return
	}
	t.refuse(serializer.ErrSuperseded)
	q.session.dropLocked(t)
}

// update admits and refuses waiters after a change, and wakes the watcher.
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

// apply applies a read of the whole queue: the tickets that existed at a revision.
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

// synced notes that the tickets before the first local waiter are known as of a revision.
func (q *ticketQueue) synced(rev int64) {
	if rev >= q.stale {
		q.stale = 0
	}
}

// skipGone takes out the tickets from at on that are older than rev, because the read did
// not show them. It returns the first ticket that is not older.
func (q *ticketQueue) skipGone(at *ticket, rev int64) *ticket {
	for at != nil && at.rev < rev {
		next := at.Next()
		q.gone(at)
		at = next
	}
	return at
}

// meet handles an unlisted ticket that a read at revision rev has shown. It reports
// whether the ticket counts.
func (q *ticketQueue) meet(kv *mvccpb.KeyValue, rev int64, before *ticket, position int) bool {
	key, s := string(kv.Key), q.session
	_, lease, ok := s.engine.keys.parseTicket(key)
	if !ok {
		return false
	}
	if lease != s.id && kv.CreateRevision <= q.passedUpTo {
		return false // the read is older than a known event
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

// arrived handles a ticket that a watch reports. It is listed, like local tickets whose
// requests were answered, but it is not admitted until it is covered.
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

// read parses a remote ticket's value, before the ticket is listed.
func (q *ticketQueue) read(t *ticket, value []byte) {
	r := parseRecord(value)
	t.Rule, t.inside = r.rule(), r.Inside
	if r.Max > 0 && q.Waiting() >= r.Max {
		t.doomed = true
		q.doomed++
	}
}

// noteInside notes that a remote ticket is inside, as its owner says.
func (t *ticket) noteInside(kv *mvccpb.KeyValue) {
	if !t.Local() && !t.inside && t.rev == kv.CreateRevision && kv.ModRevision != kv.CreateRevision {
		t.inside = parseRecord(kv.Value).Inside
	}
}

// heard handles the deletion of a key. The key may have been reused, before or after. So
// a ticket has gone only if it is older than the deletion.
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

// passed notes that a ticket was inside alone and has left: all tickets before it have
// gone, too.
func (q *ticketQueue) passed(rev int64) {
	q.passedUpTo = max(q.passedUpTo, rev)
	q.skipGone(q.First(), rev+1)
}

// gone notes that a ticket no longer exists. If it is local, somebody else deleted it, or
// it disappeared with the lease. A waiter has then lost its place. A holder is revoked,
// but keeps other local waiters out until it leaves.
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

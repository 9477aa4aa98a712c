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
// tickets before. Engine.mu guards everything here but changed.
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
		q.setPauseLocked()
		go q.follow()
	}
	return q
}

// slotLocked returns a number for the key of another ticket. Numbers are reused,
// because a read of the queue goes through all keys in etcd's index. A deleted key stays
// there until the next compaction.
func (q *ticketQueue) slotLocked() uint64 {
	if n := len(q.free); n > 0 {
		slot := q.free[n-1]
		q.free = q.free[:n-1]
		return slot
	}
	q.slots++
	return q.slots
}

// emptyLocked reports whether no local ticket is listed or requested.
func (q *ticketQueue) emptyLocked() bool { return q.making == 0 && q.Local() == 0 }

// joinLocked lists a local ticket that is now known to exist.
func (q *ticketQueue) joinLocked(t *ticket, rev int64) {
	t.rev = rev
	q.Insert(t)
	q.listedLocked(t)
}

// listedLocked notes that a ticket was inserted.
func (q *ticketQueue) listedLocked(t *ticket) {
	if !t.Local() {
		q.remote[t.key] = t
		return
	}
	t.joined = true
	t.listed <- struct{}{}
	if t.rev > q.covered {
		q.uncovered++
	}
	if q.first == nil || t.Before(q.first) {
		q.first = t
	}
}

// removeLocked takes a ticket out.
func (q *ticketQueue) removeLocked(t *ticket) {
	switch {
	case q.remote[t.key] == t:
		delete(q.remote, t.key)
		if t.doomed {
			q.doomed--
		}
	case t.Local() && !t.Admitted():
		q.settledLocked(t)
	}
	q.Remove(t)
}

// settledLocked notes that a local ticket no longer waits. It is still listed.
func (q *ticketQueue) settledLocked(t *ticket) {
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

// aheadLocked counts the tickets before t. It searches from the end, because t is usually
// there.
func (q *ticketQueue) aheadLocked(t *ticket) int {
	n := q.Len() - 1
	for later := t.Next(); later != nil; later = later.Next() {
		n--
	}
	return n
}

// advanceLocked admits the next tickets while the rule allows it, and grants the turn to local
// ones. A closing engine refuses its waiters one after the other. None of them may enter
// because the one before it has gone.
func (q *ticketQueue) advanceLocked() {
	q.passInsideLocked()
	if q.session.engine.closed || !q.session.standsLocked() {
		return
	}
	for next := q.Border(); next != nil && next.rev <= q.covered && q.Admit() != nil; next = q.Border() {
		if next.Local() {
			q.settledLocked(next)
			next.grantLocked()
		}
	}
}

// supersedeLocked refuses the first local waiter with more waiters behind it than it allows.
// The queue is then updated again, because there may be another one. All tickets before
// the waiter must be known.
func (q *ticketQueue) supersedeLocked() {
	t := q.Superseded(q.doomed)
	if t == nil || t.rev > q.covered || q.session.engine.closed || !q.session.standsLocked() {
		return
	}
	q.session.rejectLocked(t, serializer.ErrSuperseded)
}

// updateLocked admits and refuses waiters after a change, and wakes the watcher.
func (q *ticketQueue) updateLocked() {
	q.advanceLocked()
	q.supersedeLocked()
	if q.emptyLocked() {
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

// applyLocked applies a read of the whole queue: the tickets that existed at a revision.
func (q *ticketQueue) applyLocked(tickets []*mvccpb.KeyValue, rev int64) {
	q.syncedLocked(rev)
	q.unsure = q.unsure && rev < q.missed
	if rev <= q.covered {
		return
	}
	slices.SortFunc(tickets, func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.CreateRevision, b.CreateRevision) })
	at, position := q.First(), 0
	for _, kv := range tickets {
		at = q.skipGoneLocked(at, kv.CreateRevision)
		if at != nil && at.rev == kv.CreateRevision {
			at.noteInsideLocked(kv)
			at = at.Next()
			position++
			continue
		}
		if q.meetLocked(kv, rev, at, position) {
			position++
		}
	}
	q.skipGoneLocked(at, rev+1)
	q.covered = rev
	q.uncovered = 0
	for t := q.Last(); t != nil && t.rev > rev; t = t.Prev() {
		if t.Local() && !t.Admitted() {
			q.uncovered++
		}
	}
}

// syncedLocked notes that the tickets before the first local waiter are known as of a revision.
func (q *ticketQueue) syncedLocked(rev int64) {
	if rev >= q.stale {
		q.stale = 0
	}
}

// skipGoneLocked takes out the tickets from at on that are older than rev, because the read did
// not show them. It returns the first ticket that is not older.
func (q *ticketQueue) skipGoneLocked(at *ticket, rev int64) *ticket {
	for at != nil && at.rev < rev {
		next := at.Next()
		q.goneLocked(at)
		at = next
	}
	return at
}

// meetLocked handles an unlisted ticket that a read at revision rev has shown. It reports
// whether the ticket counts.
func (q *ticketQueue) meetLocked(kv *mvccpb.KeyValue, rev int64, before *ticket, position int) bool {
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
		q.readLocked(remote, kv.Value)
		q.InsertBefore(remote, before)
		q.listedLocked(remote)
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
	t.position, t.rev = position, kv.CreateRevision
	q.InsertBefore(t, before)
	q.listedLocked(t)
	return true
}

// arrivedLocked handles a ticket that a watch reports. It is listed, like local tickets whose
// requests were answered, but it is not admitted until it is covered.
func (q *ticketQueue) arrivedLocked(kv *mvccpb.KeyValue) {
	key, rev := string(kv.Key), kv.CreateRevision
	_, lease, ok := q.session.engine.keys.parseTicket(key)
	if !ok || lease == q.session.id {
		return
	}
	if known := q.remote[key]; known != nil {
		if known.rev < rev { // its deletion was not reported
			q.stale = max(q.stale, rev)
		}
		known.noteInsideLocked(kv)
		return
	}
	if rev <= max(q.covered, q.passedUpTo) {
		return
	}
	t := &ticket{key: key, rev: rev}
	q.readLocked(t, kv.Value)
	q.Insert(t)
	q.listedLocked(t)
}

// readLocked parses a remote ticket's value, before the ticket is listed.
func (q *ticketQueue) readLocked(t *ticket, value []byte) {
	r := parseRecord(value)
	t.Rule, t.inside = r.rule(), r.Inside
	if r.Max > 0 && q.Waiting() >= r.Max {
		t.doomed = true
		q.doomed++
	}
}

// noteInsideLocked notes that a remote ticket is inside, as its owner says.
func (t *ticket) noteInsideLocked(kv *mvccpb.KeyValue) {
	if !t.Local() && !t.inside && t.rev == kv.CreateRevision && kv.ModRevision != kv.CreateRevision {
		t.inside = parseRecord(kv.Value).Inside
	}
}

// heardLocked handles the deletion of a key. The key may have been reused, before or after. So
// a ticket has gone only if it is older than the deletion.
func (q *ticketQueue) heardLocked(key string, deleted int64) {
	q.missed = max(q.missed, deleted)
	t := q.remote[key]
	if ours := q.session.tickets[key]; ours != nil && ours.joined {
		t = ours
	}
	if t != nil && t.rev < deleted {
		q.goneLocked(t)
	}
}

// passedLocked notes that a ticket was inside alone and has left: all tickets before it have
// gone, too.
func (q *ticketQueue) passedLocked(rev int64) {
	q.passedUpTo = max(q.passedUpTo, rev)
	q.skipGoneLocked(q.First(), rev+1)
}

// goneLocked notes that a ticket no longer exists. If it is local, somebody else deleted it, or
// it disappeared with the lease. A waiter has then lost its place. A holder is revoked,
// but keeps other local waiters out until it leaves.
func (q *ticketQueue) goneLocked(t *ticket) {
	if !t.Local() {
		q.removeLocked(t)
		return
	}
	if t.vanished {
		return
	}
	t.vanished = true
	if t.granted {
		go t.takeRevokeLocked()(serializer.ErrLost)
		return
	}
	q.removeLocked(t)
	s := q.session
	s.missing = append(s.missing, t)
	if !s.searching {
		s.searching = true
		go s.search()
	}
}

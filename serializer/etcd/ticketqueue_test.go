package etcd

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/orderly-http/caddy-orderly/serializer"
)

func TestTicketKeys(t *testing.T) {
	const keys = keyspace("orderly/")
	for _, queue := range []string{"a", "", "a/b", "!evict", "%", "\x00\xff", "ü /", "."} {
		key := keys.ticket(queue, 0x7abc, 17)
		got, lease, ok := keys.parseTicket(key)
		if !ok || got != queue || lease != 0x7abc {
			t.Errorf("%q is key %q, read as %q of lease %x (%t)", queue, key, got, lease, ok)
		}
	}
	for _, key := range []string{"", "orderly/", "orderly/a", "orderly/a/", "orderly/a/1", "orderly/a/1-", "orderly/a/-1", "orderly/a/x-1",
		"orderly/a/1-x", "orderly/a/b/1-1", "orderly/!evict/1/17", "orderly/!/1-1", "orderly/%zz/1-1", "other/a/1-1", "orderly/%61/1-1"} {
		if queue, _, ok := keys.parseTicket(key); ok {
			t.Errorf("key %q is taken for a ticket of %q", key, queue)
		}
	}
}

func FuzzTicketKeys(f *testing.F) {
	f.Add("orderly/a%2Fb/7abc-17")
	f.Fuzz(func(t *testing.T, key string) {
		const keys = keyspace("orderly/")
		queue, lease, ok := keys.parseTicket(key)
		if !ok {
			return
		}
		again, sameLease, ok := keys.parseTicket(keys.ticket(queue, lease, 1))
		if !ok || again != queue || sameLease != lease {
			t.Errorf("%q is read as queue %q of lease %x, which is not what that makes", key, queue, lease)
		}
	})
}

// A rule that cannot be read must make others wait rather than let them in.
func TestRecordUnreadable(t *testing.T) {
	if r := parseRecord([]byte("{")).rule(); r != (serializer.Rule{}) {
		t.Errorf("rule %+v", r)
	}
}

// testQueue is a queue without a cluster and without a watcher.
func testQueue() *ticketQueue {
	e := &Engine{keys: "o/", tickets: 1 << 20, clock: func() time.Duration { return 0 }}
	s := &session{engine: e, id: 1, queues: make(map[string]*ticketQueue), tickets: make(map[string]*ticket), leaving: make(map[string]int64), deadline: time.Hour}
	s.deleters = maxDeleters // nobody deletes
	s.searching = true       // nor asks why tickets are missing
	q := &ticketQueue{session: s, name: "q", prefix: e.keys.queue("q"), remote: make(map[string]*ticket), changed: make(chan struct{}, 1)}
	s.queues["q"] = q
	return q
}

// model is a queue as it is in etcd, beside the view that one process has of
// it.
type model struct {
	*ticketQueue
	random  *rand.Rand
	rev     int64
	tickets []*mvccpb.KeyValue // that exist, in order
	rules   map[int64]serializer.Rule
	ours    map[int64]*ticket // ours, by revision

	events      []departure // that may be delivered late and twice
	lateRev     int64       // of a read whose answer is still on its way
	lateTickets []*mvccpb.KeyValue
}

// departure is the end of a ticket.
type departure struct {
	key     string
	deleted int64 // revision
	mark    mark
}

func newModel(seed uint64) *model {
	return &model{
		ticketQueue: testQueue(),
		random:      rand.New(rand.NewPCG(seed, 1)),
		rules:       make(map[int64]serializer.Rule),
		ours:        make(map[int64]*ticket),
	}
}

// TestQueueAgainstModel compares the queue in memory with the simplest
// equivalent: to go through all existing tickets, in order, each time.
func TestQueueAgainstModel(t *testing.T) {
	for seed := range uint64(300) {
		m := newModel(seed)
		for range 200 {
			switch m.random.IntN(9) {
			case 0, 1:
				m.arrive()
			case 2:
				m.answer()
			case 3:
				m.depart()
			case 4:
				m.hear()
			case 5:
				m.sync()
				m.compare(t, seed, true)
			case 6:
				m.lateRev, m.lateTickets = m.rev, slices.Clone(m.tickets)
			case 7:
				m.applyLocked(slices.Clone(m.lateTickets), m.lateRev)
				m.updateLocked()
			case 8:
				m.session.evicted(m.session.nextMissing())
				m.session.searching = true
				m.session.settleDeletions(m.session.deletions, m.rev)
				m.session.deletions = nil
			}
			m.compare(t, seed, false)
		}
	}
}

// arrive makes a ticket, ours or remote.
func (m *model) arrive() {
	m.rev += 1 + m.random.Int64N(3)
	rule := []serializer.Rule{{}, {Limit: 3}, {Shared: true}, {Shared: true, Limit: 2}}[m.random.IntN(4)]
	s := m.session
	kv := &mvccpb.KeyValue{CreateRevision: m.rev, Value: []byte(newRecord("test", serializer.Arrival{Rule: rule}, time.Time{}))}
	m.tickets, m.rules[m.rev] = append(m.tickets, kv), rule
	if m.random.IntN(2) == 0 {
		for slot := uint64(1); kv.Key == nil; slot++ {
			if key := s.engine.keys.ticket("q", 2, slot); !m.stands(key) {
				kv.Key = []byte(key)
			}
		}
		return
	}
	t := s.newTicketLocked(serializer.Arrival{Queue: "q", Rule: rule})
	kv.Key = []byte(t.key)
	m.ours[m.rev] = t
}

func (m *model) stands(key string) bool {
	return slices.ContainsFunc(m.tickets, func(kv *mvccpb.KeyValue) bool { return string(kv.Key) == key })
}

// answer delivers the answer to a ticket of ours.
func (m *model) answer() {
	for rev, w := range m.ours {
		if !w.joined && !w.refused {
			m.joinLocked(w, rev)
			m.updateLocked()
			return
		}
	}
}

// depart ends a turn or a wait.
func (m *model) depart() {
	if len(m.tickets) == 0 {
		return
	}
	i := m.random.IntN(min(len(m.tickets), 4))
	rev := m.tickets[i].CreateRevision
	if w := m.ours[rev]; w != nil {
		if !w.joined {
			return
		}
		m.session.dropLocked(w)
		delete(m.ours, rev)
	}
	m.rev++
	rule := m.rules[rev]
	left := i == 0 && !rule.Shared && rule.Limit <= 1
	m.events = append(m.events, departure{string(m.tickets[i].Key), m.rev, mark{rev, left}})
	m.tickets = slices.Delete(m.tickets, i, i+1)
}

// hear delivers the event of one ticket that has gone.
func (m *model) hear() {
	if n := len(m.events); n > 0 {
		event := m.events[m.random.IntN(n)]
		if event.mark.left && m.random.IntN(2) == 0 {
			m.passedLocked(event.mark.rev)
		} else {
			m.heardLocked(event.key, event.deleted)
		}
		m.updateLocked()
	}
}

func (m *model) sync() {
	m.applyLocked(slices.Clone(m.tickets), m.rev)
	m.updateLocked()
}

// compare checks that nobody was admitted too early and, where all is known,
// nobody too late.
func (m *model) compare(t *testing.T, seed uint64, complete bool) {
	t.Helper()
	ahead, shared, open := 0, 0, true
	waiting, uncovered := 0, 0
	for _, kv := range m.tickets {
		rule := m.rules[kv.CreateRevision]
		open = open && rule.Admits(ahead, shared)
		ahead++
		if rule.Shared {
			shared++
		}
		w := m.ours[kv.CreateRevision]
		if w == nil {
			continue
		}
		if w.granted && !open {
			t.Fatalf("seed %d: ticket %d is inside and must not be", seed, kv.CreateRevision)
		}
		if complete && open && !w.granted {
			t.Fatalf("seed %d: ticket %d is not inside and should be", seed, kv.CreateRevision)
		}
		if w.joined && !w.granted {
			waiting++
			if w.rev > m.covered {
				uncovered++
			}
		}
	}
	if m.LocalWaiting() != waiting || m.uncovered != uncovered {
		t.Fatalf("seed %d: %d waiting, %d uncovered; the queue counts %d and %d", seed, waiting, uncovered, m.LocalWaiting(), m.uncovered)
	}
	if (m.first == nil) != (waiting == 0) {
		t.Fatalf("seed %d: %d waiting; the first in the queue is %v", seed, waiting, m.first)
	}
}

// A ticket of ours that somebody else deletes is evicted if it waits, and
// revoked if it is inside. While it is inside, it still keeps our other
// tickets out.
func TestOurTicketDeleted(t *testing.T) {
	m := newModel(1)
	for len(m.ours) < 3 {
		m.arrive()
		if w := m.ours[m.rev]; w != nil {
			w.Rule = serializer.Rule{}
		} else {
			m.tickets = m.tickets[:len(m.tickets)-1]
		}
	}
	m.sync()
	revoked := make(chan error, 1)
	inside, waiting, last := m.First(), m.First().Next(), m.Last()
	inside.arrival.Revoke = func(err error) { revoked <- err }
	m.tickets = m.tickets[2:]
	m.rev++
	m.sync()
	if err := <-revoked; !errors.Is(err, serializer.ErrLost) {
		t.Errorf("revoked with %v", err)
	}
	if len(waiting.ready) > 0 {
		t.Error("refused before it is known whether the lease has ended")
	}
	m.session.evicted(m.session.nextMissing())
	if err := <-waiting.ready; !errors.Is(err, serializer.ErrEvicted) {
		t.Errorf("refused with %v", err)
	}
	if last.granted {
		t.Error("the next one of ours is admitted beside the one that was revoked")
	}
	m.session.dropLocked(inside)
	if !last.granted {
		t.Error("the next one is not let in")
	}
}

// A watch may report a deletion before the answer that shows the ticket
// arrives. Nothing would report it again.
func TestDeletionHeardTooEarly(t *testing.T) {
	m := newModel(1)
	key := m.session.engine.keys.ticket("q", 2, 1)
	m.heardLocked(key, 10)
	m.applyLocked([]*mvccpb.KeyValue{{Key: []byte(key), CreateRevision: 5}}, 8)
	if !m.unsure {
		t.Error("the queue relies on a watch that has reported already")
	}
	m.applyLocked(nil, 10)
	if m.unsure || m.Len() != 0 {
		t.Errorf("after a read: unsure %t, %d tickets", m.unsure, m.Len())
	}
	m.heardLocked(key, 10)
	m.applyLocked([]*mvccpb.KeyValue{{Key: []byte(key), CreateRevision: 11}}, 12)
	if m.unsure {
		t.Error("the deletion of an earlier ticket makes the queue unsure of a later one")
	}
}

// A read may be older than a deletion that a watch has reported. The ticket that it
// shows is listed once more, before those that have entered since, and no event
// will ever take it out.
func TestTicketReadAfterItsDeletion(t *testing.T) {
	q := testQueue()
	remote := &mvccpb.KeyValue{Key: []byte(q.session.engine.keys.ticket("q", 2, 1)), CreateRevision: 5}
	waiter := q.session.newTicketLocked(serializer.Arrival{Queue: "q"})
	ours := &mvccpb.KeyValue{Key: []byte(waiter.key), CreateRevision: 7}
	q.joinLocked(waiter, 7)
	q.applyLocked([]*mvccpb.KeyValue{remote, ours}, 8)
	q.heardLocked(string(remote.Key), 10)
	q.updateLocked()
	if !waiter.granted {
		t.Error("the waiter is not admitted after the deletion")
	}
	q.applyLocked([]*mvccpb.KeyValue{remote, ours}, 9)
	if !q.unsure {
		t.Error("the queue relies on a ticket that has gone")
	}
	q.applyLocked([]*mvccpb.KeyValue{ours}, 10)
	if q.unsure || q.Len() != 1 || q.Inside() != 1 {
		t.Errorf("after a read: unsure %t, %d tickets, %d inside", q.unsure, q.Len(), q.Inside())
	}
}

// A late request can make a ticket again. It may be read while the deletion of
// the first one is under way. If it were passed over then, no later read would
// show anything new.
func TestStrayWhileLeaving(t *testing.T) {
	m := newModel(1)
	key := m.session.engine.keys.ticket("q", m.session.id, 1)
	m.session.deleteLocked(deletion{queue: m.ticketQueue, key: key, rev: 20})
	m.applyLocked([]*mvccpb.KeyValue{{Key: []byte(key), CreateRevision: 30}}, 30)
	m.applyLocked([]*mvccpb.KeyValue{{Key: []byte(key), CreateRevision: 30}}, 31)
	if n := len(m.session.deletions); n != 2 || m.session.deletions[1].rev != 30 {
		t.Errorf("%d deletions, want one of each ticket", n)
	}
}

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

// What cannot be read must make others wait rather than let them in.
func TestRecordUnreadable(t *testing.T) {
	if r := parseRecord([]byte("{")).rule(); r != (serializer.Rule{}) {
		t.Errorf("rule %+v", r)
	}
}

// testLine is a line without a cluster and without a keeper.
func testLine() *line {
	e := &Engine{keys: "o/", tickets: 1 << 20, clock: func() time.Duration { return 0 }}
	s := &session{engine: e, id: 1, places: make(map[string]*place), leaving: make(map[string]int64), deadline: time.Hour}
	s.deleters = maxDeleters // nobody deletes
	s.searching = true       // nor asks why tickets are missing
	return &line{session: s, queue: "q", prefix: e.keys.queue("q"), foreign: make(map[string]*entry), changed: make(chan struct{}, 1)}
}

// world is a queue as it is in etcd, and what one process makes of it.
type world struct {
	*line
	random  *rand.Rand
	rev     int64
	tickets []*mvccpb.KeyValue // that stand, in order
	rules   map[int64]serializer.Rule
	places  map[int64]*place // ours, by revision

	events      []departure // that happened, and may be told late and twice
	lateRev     int64       // of a look that is still on its way
	lateTickets []*mvccpb.KeyValue
}

// departure is the end of a ticket.
type departure struct {
	key     string
	deleted int64 // revision
	mark    mark
}

func newWorld(seed uint64) *world {
	return &world{
		line:   testLine(),
		random: rand.New(rand.NewPCG(seed, 1)),
		rules:  make(map[int64]serializer.Rule),
		places: make(map[int64]*place),
	}
}

// TestLineAgainstModel compares the line with the plainest way to say the same:
// all tickets that stand are gone through in order, each time.
func TestLineAgainstModel(t *testing.T) {
	for seed := range uint64(300) {
		w := newWorld(seed)
		for range 200 {
			switch w.random.IntN(9) {
			case 0, 1:
				w.arrive()
			case 2:
				w.answer()
			case 3:
				w.depart()
			case 4:
				w.hear()
			case 5:
				w.look()
				w.compare(t, seed, true)
			case 6:
				w.lateRev, w.lateTickets = w.rev, slices.Clone(w.tickets)
			case 7:
				w.apply(slices.Clone(w.lateTickets), w.lateRev)
				w.update()
			case 8:
				w.session.evicted(w.session.nextMissing())
				w.session.searching = true
				w.session.settleDeletions(w.session.deletions, w.rev)
				w.session.deletions = nil
			}
			w.compare(t, seed, false)
		}
	}
}

// arrive makes a ticket, of ours or of another process.
func (w *world) arrive() {
	w.rev += 1 + w.random.Int64N(3)
	rule := []serializer.Rule{{}, {Limit: 3}, {Shared: true}, {Shared: true, Limit: 2}}[w.random.IntN(4)]
	s := w.session
	kv := &mvccpb.KeyValue{CreateRevision: w.rev, Value: []byte(newRecord("test", serializer.Arrival{Rule: rule}, time.Time{}))}
	w.tickets, w.rules[w.rev] = append(w.tickets, kv), rule
	if w.random.IntN(2) == 0 {
		for slot := uint64(1); kv.Key == nil; slot++ {
			if key := s.engine.keys.ticket("q", 2, slot); !w.stands(key) {
				kv.Key = []byte(key)
			}
		}
		return
	}
	p := &place{session: s, line: w.line, ready: make(chan error, 1), slot: w.slot(), after: s.deleted}
	kv.Key = []byte(s.engine.keys.ticket("q", s.id, p.slot))
	p.key, p.rule, p.entry.place = string(kv.Key), rule, p
	s.places[p.key] = p
	w.places[w.rev] = p
}

func (w *world) stands(key string) bool {
	return slices.ContainsFunc(w.tickets, func(kv *mvccpb.KeyValue) bool { return string(kv.Key) == key })
}

// answer lets us hear that a ticket of ours was made.
func (w *world) answer() {
	for rev, p := range w.places {
		if !p.joined && !p.refused {
			w.join(p, rev)
			w.update()
			return
		}
	}
}

// depart ends a turn or a wait.
func (w *world) depart() {
	if len(w.tickets) == 0 {
		return
	}
	i := w.random.IntN(min(len(w.tickets), 4))
	rev := w.tickets[i].CreateRevision
	if p := w.places[rev]; p != nil {
		if !p.joined {
			return
		}
		w.session.drop(p)
		delete(w.places, rev)
	}
	w.rev++
	rule := w.rules[rev]
	left := i == 0 && !rule.Shared && rule.Limit <= 1
	w.events = append(w.events, departure{string(w.tickets[i].Key), w.rev, mark{rev, left}})
	w.tickets = slices.Delete(w.tickets, i, i+1)
}

// hear lets us hear of one ticket that has gone.
func (w *world) hear() {
	if n := len(w.events); n > 0 {
		event := w.events[w.random.IntN(n)]
		if event.mark.left && w.random.IntN(2) == 0 {
			w.passed(event.mark.rev)
		} else {
			w.heard(event.key, event.deleted)
		}
		w.update()
	}
}

func (w *world) look() {
	w.apply(slices.Clone(w.tickets), w.rev)
	w.update()
}

// compare checks that we have let in nobody too early and, where we know all,
// nobody too late.
func (w *world) compare(t *testing.T, seed uint64, complete bool) {
	t.Helper()
	ahead, shared, open := 0, 0, true
	waiting, uncovered := 0, 0
	for _, kv := range w.tickets {
		rule := w.rules[kv.CreateRevision]
		open = open && rule.Admits(ahead, shared)
		ahead++
		if rule.Shared {
			shared++
		}
		p := w.places[kv.CreateRevision]
		if p == nil {
			continue
		}
		if p.granted && !open {
			t.Fatalf("seed %d: ticket %d is inside and must not be", seed, kv.CreateRevision)
		}
		if complete && open && !p.granted {
			t.Fatalf("seed %d: ticket %d is not inside and should be", seed, kv.CreateRevision)
		}
		if p.joined && !p.granted {
			waiting++
			if p.rev > w.covered {
				uncovered++
			}
		}
	}
	if w.waiting != waiting || w.uncovered != uncovered {
		t.Fatalf("seed %d: %d waiting, %d uncovered; the line counts %d and %d", seed, waiting, uncovered, w.waiting, w.uncovered)
	}
	if (w.first == nil) != (waiting == 0) {
		t.Fatalf("seed %d: %d waiting; the line's first is %v", seed, waiting, w.first)
	}
}

// A ticket of ours that somebody deletes is evicted if it waits, and told to
// stop if it is inside; it then still keeps the others of ours out.
func TestOurTicketDeleted(t *testing.T) {
	w := newWorld(1)
	for len(w.places) < 3 {
		w.arrive()
		if p := w.places[w.rev]; p != nil {
			p.rule = serializer.Rule{}
		} else {
			w.tickets = w.tickets[:len(w.tickets)-1]
		}
	}
	w.look()
	revoked := make(chan error, 1)
	inside, waiting, last := w.head.place, w.head.next.place, w.tail.place
	inside.arrival.Revoke = func(err error) { revoked <- err }
	w.tickets = w.tickets[2:]
	w.rev++
	w.look()
	if err := <-revoked; !errors.Is(err, serializer.ErrLost) {
		t.Errorf("revoked with %v", err)
	}
	if len(waiting.ready) > 0 {
		t.Error("refused before it is known whether the lease has ended")
	}
	w.session.evicted(w.session.nextMissing())
	if err := <-waiting.ready; !errors.Is(err, serializer.ErrEvicted) {
		t.Errorf("refused with %v", err)
	}
	if last.granted {
		t.Error("the next one of ours is let in beside the one that was told to stop")
	}
	w.session.drop(inside)
	if !last.granted {
		t.Error("the next one is not let in")
	}
}

// A watch may tell of a deletion before the answer has come that shows the
// ticket. Nobody would tell of it again.
func TestDeletionHeardTooEarly(t *testing.T) {
	w := newWorld(1)
	key := w.session.engine.keys.ticket("q", 2, 1)
	w.heard(key, 10)
	w.apply([]*mvccpb.KeyValue{{Key: []byte(key), CreateRevision: 5}}, 8)
	if !w.unsure {
		t.Error("the line relies on a watch that has told already")
	}
	w.apply(nil, 10)
	if w.unsure || w.length != 0 {
		t.Errorf("after a look: unsure %t, %d tickets", w.unsure, w.length)
	}
	w.heard(key, 10)
	w.apply([]*mvccpb.KeyValue{{Key: []byte(key), CreateRevision: 11}}, 12)
	if w.unsure {
		t.Error("the deletion of an earlier ticket makes the line unsure of a later one")
	}
}

// A ticket that stands again, by a request that was long on its way, may be
// seen while the deletion of the first one is under way. If it were passed over
// then, no later look would show anything new.
func TestStrayWhileLeaving(t *testing.T) {
	w := newWorld(1)
	key := w.session.engine.keys.ticket("q", w.session.id, 1)
	w.session.remove(deletion{line: w.line, key: key, rev: 20})
	w.apply([]*mvccpb.KeyValue{{Key: []byte(key), CreateRevision: 30}}, 30)
	w.apply([]*mvccpb.KeyValue{{Key: []byte(key), CreateRevision: 30}}, 31)
	if n := len(w.session.deletions); n != 2 || w.session.deletions[1].rev != 30 {
		t.Errorf("%d deletions, want one of each ticket", n)
	}
}

package storetest

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// group is what a case of the store alone works with: stores that share their queues, each
// followed by a recorder.
type group struct {
	testing.TB
	Options
	recorders []*recorder

	mu   sync.Mutex
	over bool             // the case has ended
	made int              // tickets that the case has made
	out  map[id]*recorder // owners of the tickets that have joined, are wanted, and were not removed
}

// id distinguishes a ticket from all others, in each process.
type id struct {
	queue  string
	number uint64
}

func idOf(t *serializer.Ticket) id { return id{t.Queue, t.Number} }

// recorder follows a store in place of an engine. It complains of each report that breaks
// a promise. The lock of its group guards it.
type recorder struct {
	*group
	store     serializer.Store
	index     int
	appending sync.Mutex // held while Append is called
	closed    bool

	joining   []*serializer.Ticket // of the Append in progress: those that have not joined, in order
	unwanted  map[*serializer.Ticket]bool
	known     map[id]*serializer.Ticket
	last      map[string]uint64 // by queue: the greatest number that was reported
	own       map[string]uint64 // the same of own tickets
	pauses    map[string]time.Time
	evictions map[id]int
	onJoined  func() // called by the next report of an own ticket
}

// followed makes a test of stores from one of recorders that follow them.
func followed(test func(*group)) func(testing.TB, Options, []serializer.Store) {
	return func(t testing.TB, o Options, stores []serializer.Store) {
		g := newGroup(t, o)
		for _, store := range stores {
			g.follow(store)
		}
		test(g)
	}
}

func newGroup(t testing.TB, o Options) *group {
	g := &group{TB: t, Options: o, out: make(map[id]*recorder)}
	t.Cleanup(func() {
		defer g.locked(func() { g.over = true })
		g.end()
	})
	return g
}

// follow begins to record what a store reports.
func (g *group) follow(store serializer.Store) *recorder {
	r := &recorder{
		group: g, store: store, index: len(g.recorders),
		known: make(map[id]*serializer.Ticket), last: make(map[string]uint64), own: make(map[string]uint64),
		pauses: make(map[string]time.Time), evictions: make(map[id]int),
	}
	g.recorders = append(g.recorders, r)
	store.Follow(r)
	return r
}

// locked calls do with the group's lock.
func (g *group) locked(do func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	do()
}

// until waits for what must be reported.
func (g *group) until(what string, holds func() bool) {
	g.Helper()
	g.Options.until(g.TB, what, func() (ok bool) {
		g.locked(func() { ok = holds() })
		return ok
	})
}

// agree waits until all recorders know exactly the tickets that are out. A process without a waiter may
// need a Sync for that.
func (g *group) agree() {
	g.Helper()
	for _, r := range g.recorders {
		if r.closed {
			continue
		}
		what := fmt.Sprintf("store %d has reported what is there, and nothing else", r.index)
		g.Options.until(g.TB, what, func() (same bool) {
			r.check(r.store.Sync(r.soon()))
			g.locked(func() {
				same = maps.EqualFunc(r.known, g.out, func(*serializer.Ticket, *recorder) bool { return true })
			})
			return same
		})
	}
}

// busy has each store issue and remove a ticket of another queue. After that, a store that
// is about to report something wrong has done it.
func (g *group) busy() {
	g.Helper()
	for _, r := range g.recorders {
		t := r.enter("another_")
		g.agree()
		r.remove(t)
		g.agree()
	}
}

// end removes all tickets, waits until nobody knows of any, and closes the stores.
func (g *group) end() {
	var left map[id]*recorder
	g.locked(func() { left = maps.Clone(g.out) })
	for of, owner := range left {
		if t := owner.find(of); t != nil { // a wrong store may have reported that it is gone
			owner.remove(t)
		}
	}
	g.agree()
	for _, r := range g.recorders {
		r.close()
	}
}

// soon is a context that is done when patience ends.
func (o Options) soon() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(o.Patience, cancel)
	return ctx
}

// check fails the test if a method of the store has failed.
func (r *recorder) check(err error) {
	r.Helper()
	if err != nil {
		r.Fatalf("store %d: %v", r.index, err)
	}
}

// ticket makes a ticket, as an engine does.
func (r *recorder) ticket(text string, rule serializer.Rule) *serializer.Ticket {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made++
	return serializer.NewTicket(serializer.Arrival{Queue: serializer.QueueName(text), Rule: rule, Client: clientOf(r.made)})
}

// enter issues a ticket.
func (r *recorder) enter(text string, rule ...serializer.Rule) *serializer.Ticket {
	r.Helper()
	t := r.ticket(text, append(rule, alone)[0])
	r.check(r.append(r.soon(), t))
	return t
}

// append issues tickets.
func (r *recorder) append(ctx context.Context, tickets ...*serializer.Ticket) error {
	r.appending.Lock()
	defer r.appending.Unlock()
	r.locked(func() { r.joining = tickets })
	err := r.store.Append(ctx, tickets)
	r.locked(func() {
		if err == nil && len(r.joining) > 0 {
			err = fmt.Errorf("no error, but ticket %v has not joined", idOf(r.joining[0]))
		}
		r.joining = nil // from now on, none of them must be reported
	})
	return err
}

// remove takes a ticket out.
func (r *recorder) remove(t *serializer.Ticket) {
	r.locked(func() {
		delete(r.out, idOf(t))
		delete(r.known, idOf(t))
	})
	r.store.Remove(t)
}

// close closes the store, once.
func (r *recorder) close() {
	if r.closed {
		return
	}
	if err := r.store.Close(); err != nil {
		r.Errorf("store %d: Close: %v", r.index, err)
	}
	r.locked(func() { r.closed = true })
}

// find returns a ticket as it was reported.
func (r *recorder) find(of id) *serializer.Ticket {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known[of]
}

// expect complains unless a promise is kept. A case that has failed may leave a store open. What that
// reports afterwards would make the test panic, which hides why it failed.
func (r *recorder) expect(kept bool, format string, args ...any) {
	if !kept && !(r.over && r.Failed()) {
		r.Errorf("store %d: "+format, append([]any{r.index}, args...)...)
	}
}

// lock takes the lock for a report.
func (r *recorder) lock() {
	r.mu.Lock()
	r.expect(!r.closed, "something is reported after Close")
}

// Joined checks that the ticket is in order.
func (r *recorder) Joined(t *serializer.Ticket) (wanted bool) {
	r.lock()
	wanted = r.joinedLocked(t)
	hook := r.onJoined
	r.onJoined = nil
	r.mu.Unlock()
	if hook != nil {
		hook()
	}
	return wanted
}

func (r *recorder) joinedLocked(t *serializer.Ticket) (wanted bool) {
	of := idOf(t)
	if len(r.joining) == 0 || r.joining[0] != t {
		r.expect(false, "ticket %v has joined, which is not the next one that Append is about to issue", of)
		return false
	}
	r.joining = r.joining[1:]
	r.expect(t.Number > r.last[t.Queue], "ticket %v has joined after %d was reported", of, r.last[t.Queue])
	r.last[t.Queue], r.own[t.Queue] = max(r.last[t.Queue], t.Number), t.Number
	wanted = !r.unwanted[t]
	if wanted {
		r.known[of], r.out[of] = t, r
	}
	return wanted
}

// Appeared checks that the ticket is new, and not reported too late.
func (r *recorder) Appeared(t *serializer.Ticket) {
	r.lock()
	defer r.mu.Unlock()
	of := idOf(t)
	r.expect(r.known[of] == nil, "ticket %v appears twice", of)
	r.expect(r.out[of] != r, "own ticket %v appears as that of another process", of)
	r.expect(t.Number > r.own[t.Queue], "ticket %v appears after the own one %d has joined", of, r.own[t.Queue])
	r.known[of] = t
	r.last[t.Queue] = max(r.last[t.Queue], t.Number)
}

// Vanished checks that the owner has removed the ticket.
func (r *recorder) Vanished(t *serializer.Ticket) {
	r.lock()
	defer r.mu.Unlock()
	of := idOf(t)
	if r.known[of] == t {
		delete(r.known, of)
		r.expect(r.out[of] == nil, "ticket %v vanishes, but its owner has not removed it", of)
	}
}

// Removed complains: in this suite, nobody removes a ticket of another process.
func (r *recorder) Removed(t *serializer.Ticket) {
	r.lock()
	defer r.mu.Unlock()
	r.expect(false, "ticket %v was removed by somebody else", idOf(t))
}

// Evict counts.
func (r *recorder) Evict(queue string, number uint64) (found bool) {
	r.lock()
	defer r.mu.Unlock()
	of := id{queue, number}
	if r.out[of] != r {
		return false
	}
	r.evictions[of]++
	return true
}

// Paused notes the end of a pause.
func (r *recorder) Paused(name string, until time.Time) {
	r.lock()
	defer r.mu.Unlock()
	r.pauses[name] = until
}

// Lost complains: in this suite, nothing is lost.
func (r *recorder) Lost(cause error) {
	r.lock()
	defer r.mu.Unlock()
	r.expect(false, "everything is lost: %v", cause)
}

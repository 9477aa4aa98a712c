package storetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
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

	mu      sync.Mutex
	issues  map[*serializer.Ticket]*issue // all tickets that the case has made
	out     map[id]*issue                 // those that have joined, and that their owners want
	resumed map[string]bool               // pauses that may end before their time
}

// id tells a ticket from all others, in each process.
type id struct {
	queue  string
	number uint64
}

func idOf(t *serializer.Ticket) id { return id{t.Queue, t.Number} }

// issue is a ticket in the process that it belongs to.
type issue struct {
	ticket   *serializer.Ticket
	owner    *recorder
	behind   []id   // those that had joined when Append was called
	next     *issue // in the same call of Append
	joined   bool
	unwanted bool
}

// recorder follows a store in place of an engine. It complains of each report that breaks
// a promise. The lock of its group guards it.
type recorder struct {
	group     *group
	store     serializer.Store
	index     int
	appending sync.Mutex // held while Append is called
	closed    bool

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
	g := &group{TB: t, Options: o}
	g.issues, g.out, g.resumed = make(map[*serializer.Ticket]*issue), make(map[id]*issue), make(map[string]bool)
	t.Cleanup(g.end)
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
	store.Follow((*events)(r))
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

// agree waits until all recorders know exactly the tickets that are out. A process without
// a waiter may need a Sync for that.
func (g *group) agree() {
	g.Helper()
	for _, r := range g.recorders {
		if r.closed {
			continue
		}
		g.Options.until(g.TB, fmt.Sprintf("store %d has reported what is there, and nothing else", r.index), func() bool {
			if err := r.call("Sync", r.store.Sync); err != nil {
				g.Fatal(err)
			}
			return r.agrees()
		})
	}
}

// agrees reports whether a recorder knows exactly the tickets that are out.
func (r *recorder) agrees() bool {
	r.group.mu.Lock()
	defer r.group.mu.Unlock()
	return maps.EqualFunc(r.known, r.group.out, func(*serializer.Ticket, *issue) bool { return true })
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
	g.mu.Lock()
	left := slices.Collect(maps.Values(g.out))
	g.mu.Unlock()
	for _, i := range left {
		i.owner.remove(i.ticket)
	}
	g.agree()
	for _, r := range g.recorders {
		r.close()
	}
}

// call calls a method of the store with a context that is done when patience ends.
func (r *recorder) call(name string, method func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), r.group.Patience)
	defer cancel()
	if err := method(ctx); err != nil {
		return fmt.Errorf("store %d: %s: %w", r.index, name, err)
	}
	return nil
}

// must is like call, and fails the test if there is an error.
func (r *recorder) must(name string, method func(context.Context) error) {
	r.group.Helper()
	if err := r.call(name, method); err != nil {
		r.group.Fatal(err)
	}
}

// ticket makes a ticket, as an engine does.
func (r *recorder) ticket(text string, rule serializer.Rule) (t *serializer.Ticket) {
	g := r.group
	g.locked(func() {
		t = serializer.NewTicket(serializer.Arrival{Queue: g.QueueName(text), Rule: rule, Client: clientOf(len(g.issues) + 1)})
		g.issues[t] = &issue{ticket: t, owner: r}
	})
	return t
}

// enter issues a ticket.
func (r *recorder) enter(text string, rule ...serializer.Rule) *serializer.Ticket {
	r.group.Helper()
	t := r.ticket(text, append(rule, serializer.Rule{})[0])
	r.must("Append", func(ctx context.Context) error { return r.append(ctx, t) })
	return t
}

// append issues tickets.
func (r *recorder) append(ctx context.Context, tickets ...*serializer.Ticket) error {
	g := r.group
	g.locked(func() {
		for n, t := range tickets {
			g.issues[t].behind = slices.Collect(maps.Keys(g.out))
			if n > 0 {
				g.issues[tickets[n-1]].next = g.issues[t]
			}
		}
	})
	r.appending.Lock()
	defer r.appending.Unlock()
	err := r.store.Append(ctx, tickets)
	g.locked(func() {
		for _, t := range tickets {
			if err == nil && !g.issues[t].joined {
				err = fmt.Errorf("no error, but ticket %v has not joined", idOf(t))
			}
			g.issues[t].joined = true // from now on, it must not be reported
		}
	})
	return err
}

// remove takes a ticket out.
func (r *recorder) remove(t *serializer.Ticket) {
	r.group.locked(func() {
		delete(r.group.out, idOf(t))
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
		r.group.Errorf("store %d: Close: %v", r.index, err)
	}
	r.group.locked(func() { r.closed = true })
}

// find returns a ticket of another process as it was reported.
func (r *recorder) find(t *serializer.Ticket) (found *serializer.Ticket) {
	r.group.locked(func() { found = r.known[idOf(t)] })
	return found
}

// events is a recorder as its store sees it.
type events recorder

// lock takes the lock for a report.
func (v *events) lock() *recorder {
	r := (*recorder)(v)
	r.group.mu.Lock()
	r.expect(!r.closed, "something is reported after Close")
	return r
}

// expect complains unless a promise is kept.
func (r *recorder) expect(kept bool, format string, args ...any) {
	if !kept {
		r.group.Errorf("store %d: "+format, append([]any{r.index}, args...)...)
	}
}

// Joined checks that the ticket is in order.
func (v *events) Joined(t *serializer.Ticket) (wanted bool) {
	r := v.lock()
	wanted = r.joinedLocked(t, r.group.issues[t])
	hook := r.onJoined
	r.onJoined = nil
	r.group.mu.Unlock()
	if hook != nil {
		hook()
	}
	return wanted
}

func (r *recorder) joinedLocked(t *serializer.Ticket, i *issue) (wanted bool) {
	g, of := r.group, idOf(t)
	if i == nil || i.owner != r || i.joined {
		r.expect(false, "ticket %v has joined, which is not one that Append is about to issue", of)
		return false
	}
	r.expect(i.next == nil || !i.next.joined, "ticket %v has joined after the next one of the same call of Append", of)
	r.expect(t.Number > r.last[t.Queue], "ticket %v has joined after %d was reported", of, r.last[t.Queue])
	i.joined = true
	r.last[t.Queue], r.own[t.Queue] = max(r.last[t.Queue], t.Number), t.Number
	if !i.unwanted {
		r.known[of], g.out[of] = t, i
	}
	for _, other := range i.behind {
		before := other.queue != t.Queue || g.out[other] == nil || r.known[other] != nil && other.number < t.Number
		r.expect(before, "ticket %v has joined, but ticket %v had joined before, and must be reported before", of, other)
	}
	return !i.unwanted
}

// Appeared checks that the ticket is new, and not reported too late.
func (v *events) Appeared(t *serializer.Ticket) {
	r := v.lock()
	defer r.group.mu.Unlock()
	of, i := idOf(t), r.group.out[idOf(t)]
	r.expect(r.known[of] == nil, "ticket %v appears twice", of)
	r.expect(i == nil || i.owner != r, "own ticket %v appears as that of another process", of)
	r.expect(t.Number > r.own[t.Queue], "ticket %v appears after the own one %d has joined", of, r.own[t.Queue])
	r.known[of] = t
	r.last[t.Queue] = max(r.last[t.Queue], t.Number)
}

// Vanished checks that the owner has removed the ticket.
func (v *events) Vanished(t *serializer.Ticket) {
	r := v.lock()
	defer r.group.mu.Unlock()
	of := idOf(t)
	if r.known[of] == t {
		delete(r.known, of)
		r.expect(r.group.out[of] == nil, "ticket %v vanishes, but its owner has not removed it", of)
	}
}

// Removed complains: in this suite, nobody removes a ticket of another process.
func (v *events) Removed(t *serializer.Ticket) {
	r := v.lock()
	defer r.group.mu.Unlock()
	r.expect(false, "ticket %v was removed by somebody else", idOf(t))
}

// Evict counts.
func (v *events) Evict(queue string, number uint64) (found bool) {
	r := v.lock()
	defer r.group.mu.Unlock()
	i := r.group.out[id{queue, number}]
	if i == nil || i.owner != r {
		return false
	}
	r.evictions[id{queue, number}]++
	return true
}

// Paused checks that no pause ends too soon.
func (v *events) Paused(name string, until time.Time) {
	r := v.lock()
	defer r.group.mu.Unlock()
	before := r.pauses[name]
	r.pauses[name] = until
	r.expect(!until.IsZero() || r.group.resumed[name] || !time.Now().Before(before), "the pause of %q ends before %s", name, before)
}

// Lost complains: in this suite, nothing is lost.
func (v *events) Lost(cause error) {
	r := v.lock()
	defer r.group.mu.Unlock()
	r.expect(false, "everything is lost: %v", cause)
}

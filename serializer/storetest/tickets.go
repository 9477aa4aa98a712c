package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// alone is the rule of most tickets.
var alone = serializer.Rule{}

// The numbers of tickets are unique and grow, also if many are issued at once. In each
// process, an own ticket is reported after all smaller ones and before all greater ones.
// The recorders check that, in each case.
func storeNumbers(g *group) {
	var appending sync.WaitGroup
	for _, r := range g.recorders {
		for worker := range 2 {
			appending.Go(func() {
				for i := range 30 {
					batch := make([]*serializer.Ticket, 1+(i+worker)%4)
					for n := range batch {
						batch[n] = r.ticket([]string{"a_", "b_"}[(i+n)%2], alone)
					}
					if err := r.append(r.soon(), batch...); err != nil {
						g.Error(err)
						return
					}
					if i%3 > 0 {
						r.remove(batch[0])
					}
				}
			})
		}
	}
	appending.Wait()
	g.agree()
}

// clockSlack is how far the time of a ticket may be from the wall clock.
const clockSlack = time.Second

// Each process knows what it must of remote tickets, before the next own ticket.
func storeOthers(g *group) {
	start := time.Now()
	rules := []serializer.Rule{{}, {Limit: 3}, {Shared: true}, {Shared: true, Limit: 2}, {Limit: 1}}
	for i, rule := range rules {
		r := g.recorders[i%len(g.recorders)]
		t := r.enter("a_", rule)
		g.agree()
		for _, other := range g.recorders {
			seen := other.find(idOf(t))
			owned := seen.Owner != nil && seen.Owner.Name != "" && seen.Owner.Alive
			other.expect(owned && seen.Rule == rule && seen.Client == t.Client,
				"reported is %+v with owner %+v; expected rule %+v, client %v and an owner that is alive", seen, seen.Owner, rule, t.Client)
			early, late := seen.Arrived.Before(start.Add(-clockSlack)), seen.Arrived.After(time.Now().Add(clockSlack))
			other.expect(!early && !late, "arrived %s; the case began at %s", seen.Arrived, start)
		}
	}
	for _, r := range g.recorders {
		path, first := r.store.Path(), g.recorders[0].store.Path()
		r.expect(path != "" && path == first, "path %q; the first one has %q", path, first)
	}
}

// Every text is a queue of its own.
func storeNames(g *group) {
	texts := []string{"a", "a_", "a_b_", "", "a_0", "a0", "a_0000", "a/b", "a//b", "/", "!evict", "!evict/1/", "%2F", "%", "ü",
		"\x00\xff", "\x00", "a ", " a", ".", "..", "a\nb", "*", "a*", strings.Repeat("x", 150)}
	for i, text := range texts {
		g.recorders[i%len(g.recorders)].enter(text)
	}
	g.agree()
}

// meanwhile is how long a report is held up, so that another process can do something.
const meanwhile = time.Second

// A ticket that has joined can be seen by other processes: whatever they issue from that moment on,
// is greater, and reported later. A store may have them wait until the report is over.
func storePublished(g *group) {
	first, second := g.recorders[0], g.recorders[1]
	next, done := second.ticket("a_", alone), make(chan error, 1)
	g.locked(func() {
		first.onJoined = func() {
			go func() { done <- second.append(second.soon(), next) }()
			wait.Poll(meanwhile, func() bool { return len(done) > 0 })
		}
	})
	first.enter("a_")
	if err := <-done; err != nil {
		g.Fatal(err)
	}
	for range 3 {
		first.enter("a_")
		second.enter("a_")
	}
	g.agree()
}

// A ticket that the engine does not want leaves nothing behind. Those of the same batch
// stay.
func storeUnwanted(g *group) {
	for i, r := range g.recorders {
		batch := []*serializer.Ticket{r.ticket("a_", alone), r.ticket("a_", alone), r.ticket("b_", alone), r.ticket("a_", alone)}
		g.locked(func() { r.unwanted = map[*serializer.Ticket]bool{batch[1+i%2]: true, batch[3]: true} })
		r.check(r.append(r.soon(), batch...))
		g.busy()
		g.agree()
	}
}

// Tickets of an Append that fails are refused, and leave nothing behind. Nobody waits for
// an engine that closes.
func storeRefused(g *group) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for _, r := range g.recorders {
		err := r.append(over, r.ticket("a_", alone), r.ticket("b_", alone))
		if err != nil && !errors.Is(err, context.Canceled) {
			g.Error(err)
		}
		g.busy()
		g.agree()
		r.enter("a_")
	}
}

// Close leaves no ticket behind, even of those that were removed just before it. The other
// stores go on.
func storeClose(g *group) {
	first := g.recorders[0]
	var tickets []*serializer.Ticket
	for range 5 {
		tickets = append(tickets, first.enter("a_"))
	}
	g.agree()
	for _, t := range tickets {
		first.remove(t)
	}
	first.close()
	g.agree()
	for _, r := range g.recorders[1:] {
		r.enter("a_")
	}
	g.agree()
}

// A store that follows later reports what is there: tickets, with what other processes must know of
// them, and pauses before the first own ticket.
func storeLate(tb testing.TB, o Options, stores []serializer.Store) {
	g := newGroup(tb, o)
	first := g.follow(stores[0])
	rule := serializer.Rule{Shared: true, Limit: 3}
	early := first.enter("a_", rule)
	first.remove(first.enter("a_"))
	first.pause(early.Queue, serializer.Forever)
	second := g.follow(stores[1])
	g.locked(func() {
		second.onJoined = func() {
			g.locked(func() {
				paused := second.pauses[early.Queue].Equal(serializer.Forever)
				second.expect(paused, "a ticket has joined, but the pause of its queue was not reported before")
			})
		}
	})
	second.enter("a_")
	seen := second.find(idOf(early))
	second.expect(seen == nil || seen.Rule == rule, "ticket %v is reported late, not with rule %+v", idOf(early), rule)
	g.agree()
	second.resume(early.Queue)
}

// The owner of a ticket learns, without a Sync, that another process asks for its eviction.
// There is an error if the ticket is not there any more.
func storeEvict(g *group) {
	for i, r := range g.recorders {
		other := g.recorders[(i+1)%len(g.recorders)]
		t, untouched := r.enter("a_"), r.enter("a_")
		g.agree()
		seen := other.find(idOf(t))
		other.check(other.store.Evict(other.soon(), seen))
		g.until("the owner is asked to evict", func() bool { return r.evictions[idOf(t)] > 0 })
		g.busy()
		g.until("no other ticket is evicted", func() bool { return r.evictions[idOf(untouched)] == 0 })
		r.remove(t)
		g.agree()
		err := other.store.Evict(other.soon(), seen)
		other.expect(errors.Is(err, serializer.ErrNoTicket), "evicting a ticket that has gone: %v; expected %v", err, serializer.ErrNoTicket)
	}
}

// clientOf is an address by which a ticket can be told from others.
func clientOf(n int) string {
	return fmt.Sprintf("192.0.2.%d:%d", byte(n>>16), uint16(n))
}

// pause has a store pause a queue, and waits until all have reported it. The zero time means
// that the queue is resumed.
func (r *recorder) pause(name string, until time.Time) {
	r.Helper()
	if until.IsZero() {
		r.check(r.store.Resume(r.soon(), name))
	} else {
		r.check(r.store.Pause(r.soon(), name, until))
	}
	r.reported(name, until)
}

func (r *recorder) resume(name string) { r.pause(name, time.Time{}) }

// reported makes sure that a store has reported the end of a pause, and waits for the
// others.
func (r *recorder) reported(name string, until time.Time) {
	r.Helper()
	r.locked(func() {
		end := r.pauses[name]
		r.expect(end.Equal(until), "returned when it had reported %s as the end of the pause; expected %s", end, until)
	})
	for _, other := range r.recorders {
		r.until(fmt.Sprintf("store %d reports a pause until %s", other.index, until), func() bool { return other.pauses[name].Equal(until) })
	}
}

// A pause is reported by all stores with its exact end, before Pause returns in the own
// process. Another one of the same name replaces it. A name with a * is one of its own.
func storePause(g *group) {
	name, end := serializer.QueueName("a_"), time.Now().Add(time.Hour).Truncate(time.Microsecond).UTC()
	for _, r := range g.recorders {
		r.enter("a_")
	}
	for i, r := range g.recorders {
		other := g.recorders[(i+1)%len(g.recorders)]
		r.pause(name, serializer.Forever)
		other.pause(name, end)
		other.pause(name+"*", serializer.Forever)
		r.resume(name + "*")
		r.reported(name, end)
		r.resume(name)
		r.resume(name) // it is no error that there is no pause
		g.busy()       // all have reported that, too, before the next pause
	}
}

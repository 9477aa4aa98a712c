package waitingpage

import (
	"cmp"
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Opening is the moment from which the queues of a prefix give places. A browser that comes before
// is registered: it has a ticket that has not joined its queue. At the moment, the tickets of the
// browsers that have sent their cookies back join in an order that is drawn by lot; see draw.
//
// Its lock is the gate for newcomers. It is held while tickets join, so a request that asks
// whether the queue is open, as each one does, gets a place behind them.
//
// The moment is one of the system's clock, which may be set. So it is looked at once a second. A
// queue that has opened stays open until a configuration has another moment.
//
// The lock of a ticket may be taken while the lock of its opening is held, but not the other way
// round. A ticket that no list has yet is the exception.
type Opening struct {
	mu     sync.Mutex
	line   *Line                       // that counts, or nil while no configuration has the prefix
	opened time.Time                   // the last moment at which it has opened
	lists  map[string]map[*Ticket]*lot // of those who are registered, by queue
	timer  *time.Timer                 // nil while nobody is registered
}

const (
	leastAsk = 2 * time.Second // between two contacts of a browser that is registered
	mostAsk  = 5 * time.Minute
	heldAsk  = 30 * time.Second // longest time that a script's question is held until the next contact is due

	openingSpread  = time.Second      // during which browsers come after the moment
	openingCheck   = time.Second      // between two looks at the clock
	registeredHold = 15 * time.Minute // for an absent browser
)

// Opening is that of a line's prefix, or nil. The line of the first request counts, until MoveOpening.
func (b *Book) Opening(prefix string, line *Line) *Opening {
	if line.Opens.IsZero() {
		return nil
	}
	o := b.openingOf(line.Space, prefix)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.line = cmp.Or(o.line, line)
	return o
}

func (b *Book) openingOf(space, prefix string) *Opening {
	found, _ := b.openings.LoadOrStore([2]string{space, prefix}, &Opening{lists: make(map[string]map[*Ticket]*lot)})
	return found.(*Opening)
}

// MoveOpening lets the line of another configuration count from now on. With nil, none has the
// prefix any more, and registered browsers wait for one that has.
func (b *Book) MoveOpening(space, prefix string, line *Line) {
	o := b.openingOf(space, prefix)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.line = line; line != nil {
		o.closedLocked()
	}
}

// Registered is how many browsers wait for the openings of a configured prefix.
func (b *Book) Registered(prefix string) (count int) {
	for _, found := range b.tickets.Range {
		if t := found.(*Ticket); t.Prefix() == prefix && t.isRegistered() {
			count++
		}
	}
	return count
}

// Closed reports whether the queues are closed, and until when; zero is not known. A nil Opening is open. If the moment
// has just come, Closed returns when all who are registered have joined.
func (o *Opening) Closed() (until time.Time, closed bool) {
	if o == nil {
		return time.Time{}, false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	closed = o.closedLocked()
	if o.line != nil {
		until = o.line.Opens
	}
	return until, closed
}

func (o *Opening) closedLocked() bool {
	if o.line == nil || !o.line.Opens.Equal(o.opened) && time.Now().Before(o.line.Opens) {
		return true
	}
	o.opened = o.line.Opens
	for queue, list := range o.lists {
		o.line.draw(queue, list)
	}
	clear(o.lists)
	return false
}

// register registers a new ticket, or returns false if the queue is open. The error is a refusal.
func (o *Opening) register(t *Ticket, n *Navigation) (bool, error) {
	if o == nil {
		return false, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closedLocked() {
		return false, nil
	}
	_, waiting := t.engine.Count(n.Queue)
	if waiting += len(o.lists[n.Queue]); n.MaxWaiting > 0 && waiting >= n.MaxWaiting {
		return false, &serializer.Refused{Reason: serializer.ReasonFull, Queue: n.Queue, Position: waiting, Err: serializer.ErrFull}
	}
	if o.lists[n.Queue] == nil {
		o.lists[n.Queue] = make(map[*Ticket]*lot)
	}
	c := &lot{Arrival: n.Arrival, ticket: t, chance: hash(cmp.Or(n.Chance, t.id)), cookie: hash(t.id)}
	if !c.DropOldest {
		c.MaxWaiting = 0 // it has been counted already
	}
	c.Holds, c.Requester, c.Revoke = nil, nil, nil // the turns around it will be over
	o.lists[n.Queue][t] = c
	if o.timer == nil {
		o.timer = time.AfterFunc(openingCheck, o.look)
	}
	return true, nil
}

// look opens the queues if their moment has come and nobody has asked, and looks again soon if it has not.
func (o *Opening) look() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.lists) == 0 || !o.closedLocked() {
		o.timer = nil
		return
	}
	o.timer.Reset(openingCheck)
}

// forget takes a ticket out of its list, unless it has been drawn.
func (o *Opening) forget(t *Ticket) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	list := o.lists[t.about.Queue]
	if delete(list, t); len(list) == 0 {
		delete(o.lists, t.about.Queue)
	}
}

// nextAsk is after how long a browser comes again, if so much time is left: after a tenth of it, and
// when the queue has just opened.
func nextAsk(left time.Duration) time.Duration {
	next := min(max(left/10, leastAsk), mostAsk)
	if next < left {
		return next
	}
	return max(left, 0) + rand.N(openingSpread)
}

// registeredPlace is the place of a ticket that is registered: it has none. It returns false for
// any other ticket.
func (t *Ticket) registeredPlace() (Place, bool) {
	var place Place
	if place.Opens, _ = t.opening.Closed(); !t.isRegistered() { // perhaps from now on
		return Place{}, false
	}
	if place.next = nextAsk(time.Until(place.Opens)); place.next > heldAsk {
		place.Ask = place.next.Seconds()
	}
	if t.proven.Load() { // else it has no more time for a proof than any other
		t.locked(func() { t.due = time.Now().Add(place.next) })
	}
	return place, true
}

func (t *Ticket) isRegistered() (yes bool) {
	t.locked(func() { yes = t.state == registered })
	return yes
}

// drawn lets a ticket that is registered join its queue, for the line that counts now: a reload may
// have changed what a turn is. Its browser may come as late as it was asked to.
func (t *Ticket) drawn(line *Line, c *lot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state != registered {
		return
	}
	if line.Page != nil {
		t.line.Store(line)
	}
	t.rule, c.Rule, c.Slots, t.listed = line.Rule, line.Rule, line.Slots, c.number
	if now := time.Now(); t.isLateLocked(now) {
		t.seen, t.gap = now, 0
	}
	t.joinLocked(context.Background(), c.Arrival)
	t.scheduleLocked()
}

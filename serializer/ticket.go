package serializer

import (
	"net/netip"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/queue"
)

// ticket is one place in a queue, of this process or of another. One of this process
// is the Turn of the engines here.
type ticket struct {
	queue.Item[*ticket]
	Ticket
	queue   *ticketQueue // nil until it is in one
	*waiter              // nil for a remote ticket
	out     bool         // no longer in the queue, or never to be

	// For the file engine. All of it belongs to the lock of the directory.
	known     bool    // of a remote ticket: its owner is, and so its rule
	unowned   bool    // no owner: it is another program's file
	announced bool    // the log tells that it is waited for
	name      string  // of the lock file
	seen      uint64  // the last listing of the directory that showed the file, or came before it
	owner     string  // of a remote ticket, for people
	barred    *barred // where the file cannot be opened
}

// waiter is the caller of Enter or Join, as the engine sees it. Everything but ready,
// joined, left, outcome and timeout belongs to the engine's lock.
type waiter struct {
	engine    ticketEngine
	ready     chan struct{} // one message: the wait has ended; nil if that was so on arrival
	joined    *joinedWait   // of a caller of Join, which has no ready
	refusal   error         // set before the message
	position  int           // how many were ahead on arrival
	max       int           // Arrival.MaxWaiting, of one that is refused if more wait
	group     string        // Arrival.Group
	entered   time.Duration // from launch
	revoke    func(error)
	requester Requester
	timeout   timeoutEntry
	left      atomic.Bool
	outcome   outcome

	// For the file engine.
	linked  bool        // the lock file exists
	givenUp bool        // the caller waits no more
	marked  atomic.Bool // a file says that the ticket is inside, for its queue is paused
	dir     *directory
}

// ticketEngine is the engine behind a ticket.
type ticketEngine interface {
	// arrive lets a ticket join its queue.
	arrive(*ticket) error

	// settle ends a wait that did not end with the turn. It reports whether the
	// turn came in the same moment and stands.
	settle(*ticket, error) (turn bool)

	// leave ends a turn.
	leave(*ticket)
}

// newTicket makes a ticket of this process, in one piece of memory. Inlined, it and
// refused would double what those who wait have on their stacks.
//
//go:noinline
func newTicket(engine ticketEngine, a *Arrival) *ticket {
	both := &struct {
		ticket
		waiter
	}{}
	t := &both.ticket
	t.waiter = &both.waiter
	t.Prefix, t.Client, t.Rule = a.Queue, a.Client, a.Rule
	t.engine = engine
	t.group, t.revoke, t.requester = a.Group, a.Revoke, a.Requester
	if a.DropOldest {
		t.MaxWaiting = a.MaxWaiting
	} else {
		t.max = a.MaxWaiting
	}
	return t
}

// needsRules reports whether it matters to a ticket of ours by which rules remote
// tickets are inside: whether it may join them, and how many wait.
func (t *ticket) needsRules() bool { return !t.Rule.Alone() || t.MaxWaiting > 0 }

// Local implements [queue.Element]: it reports whether the ticket is ours.
func (t *ticket) Local() bool { return t.waiter != nil }

// behindRemote reports whether the ticket right before this one is remote.
func (t *ticket) behindRemote() bool { return t.Prev() != nil && !t.Prev().Local() }

// Before implements [queue.Element].
func (t *ticket) Before(o *ticket) bool {
	if t.Stamp != o.Stamp {
		return t.Stamp < o.Stamp
	}
	return t.name < o.name
}

// Token implements [Turn].
func (t *ticket) Token() uint64 { return t.Stamp }

// Position implements [Turn].
func (t *ticket) Position() int { return t.position }

// Leave implements [Turn].
func (t *ticket) Leave() {
	if !t.left.Swap(true) {
		t.engine.leave(t)
	}
}

// launch is a moment to count from. A duration takes a third of the memory that
// a time takes.
var launch = time.Now()

// grant tells the caller that its turn has come.
func (w *waiter) grant() {
	w.entered = time.Since(launch)
	w.wake(nil)
}

// wake tells the caller how its wait has ended.
func (w *waiter) wake(refusal error) {
	w.refusal = refusal
	switch {
	case w.joined != nil:
		go w.joined.end(refusal)
	case w.outcome.end(decided) && w.ready != nil:
		w.ready <- struct{}{}
	}
}

// expire tells the caller that its timeout has run out.
func (w *waiter) expire() {
	switch {
	case w.joined != nil:
		go w.joined.end(ErrTimeout)
	case w.outcome.end(expired):
		w.ready <- struct{}{}
	}
}

// yield lets the waiter that was just let in run at once. Its goroutine is the next
// one of this thread, but the holder that leaves has things to do first, and
// meanwhile nobody would be inside.
func yield() { runtime.Gosched() }

// refuse tells the caller that its turn will not come.
func (t *ticket) refuse(err error) {
	t.out = true
	t.wake(err)
}

// refused is the error that the caller gets.
//
//go:noinline
func (t *ticket) refused(err error) error {
	return &Refused{Reason: ReasonOf(err), Queue: t.Prefix, Position: t.position, Token: t.Stamp, Err: err}
}

// clientText is an address for people: nothing where there is none, which the
// name of a lock file has to write as zeros.
func clientText(client netip.AddrPort) string {
	if !client.IsValid() || client.Addr().IsUnspecified() && client.Port() == 0 {
		return ""
	}
	return client.String()
}

// isInside reports whether the ticket is inside, as far as we know. In a paused queue,
// only its owner can tell.
func (t *ticket) isInside() bool {
	if q := t.queue; q != nil && q.Paused() && !t.Local() {
		_, marked := q.marks[t.Stamp]
		return marked
	}
	return t.Admitted()
}

// state describes the ticket for people.
func (t *ticket) state(now time.Time) TicketState {
	s := TicketState{
		Token:   tokenText(t.Stamp),
		State:   StateWaiting,
		Arrived: t.Time().UTC(),
		Client:  clientText(t.Client),
	}
	s.Since = s.Arrived
	if t.isInside() {
		s.State = StateInside
	}
	if !t.Local() {
		return s
	}
	s.Requester = t.requester
	if t.entered > 0 {
		// Wall time of the entry, told from now so that it follows a clock
		// that was set since.
		s.Entered = now.Add(t.entered - time.Since(launch)).UTC()
		s.Since = s.Entered
	}
	return s
}

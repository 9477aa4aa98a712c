package serializer

import (
	"net/netip"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/queue"
)

// ticket is one place in a queue, local or remote. A local ticket is the [Turn] of the
// engines in this package.
type ticket struct {
	queue.Item[*ticket]
	Ticket
	queue   *ticketQueue // nil until it is in one
	*waiter              // nil for a remote ticket
	out     bool         // no longer in the queue, or never to be

	// For the file engine. All of it belongs to the lock of the directory.
	known     bool    // of a remote ticket: its owner is known, and so is its rule
	unowned   bool    // it has no owner: it is another program's file
	announced bool    // it has been logged that arrivals wait for it
	name      string  // of the lock file
	seen      uint64  // the last listing of the directory that showed the file or preceded it
	owner     string  // of a remote ticket, for people
	barred    *barred // nil unless the file cannot be opened
}

// waiter is the caller of Enter or Join, as the engine sees it. Everything but ready,
// joined, left, outcome and timeout belongs to the engine's lock.
type waiter struct {
	engine    ticketEngine
	ready     chan struct{} // gets one message when the wait has ended; nil if it ended on arrival
	joined    *joinedWait   // of a caller of Join, which does not use ready
	refusal   error         // set before the message
	position  int           // how many were ahead on arrival
	max       int           // Arrival.MaxWaiting, unless Arrival.DropOldest is set
	group     string        // Arrival.Group
	entered   time.Duration // since launch
	revoke    func(error)
	requester Requester
	timeout   timeoutEntry
	left      atomic.Bool
	outcome   outcome

	// For the file engine.
	linked  bool        // the lock file exists
	givenUp bool        // the caller no longer waits
	marked  atomic.Bool // a file says that the ticket is inside, because its queue is paused
	dir     *directory
}

// ticketEngine is the engine behind a ticket.
type ticketEngine interface {
	// arrive makes a ticket join its queue.
	arrive(*ticket) error

	// settle ends a wait without a turn. It returns true if the turn came at the same
	// moment and counts.
	settle(*ticket, error) (turn bool)

	// leave ends a turn.
	leave(*ticket)
}

// newTicket makes a local ticket with a single allocation. If it or refused were inlined,
// the stacks of waiters would be twice as large.
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

// needsRules reports whether a local ticket needs the rules of remote tickets: whether it
// may join them inside, and how many of them wait.
func (t *ticket) needsRules() bool { return !t.Rule.Alone() || t.MaxWaiting > 0 }

// Local implements [queue.Element]: it reports whether the ticket is local.
func (t *ticket) Local() bool { return t.waiter != nil }

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

// launch is the origin of durations, which take a third of the memory of times.
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

// takeRevoke returns the callback that revokes a holder's turn, but only once.
func (w *waiter) takeRevoke() func(error) {
	revoke := w.revoke
	w.revoke = nil
	return revoke
}

// appendRevoke appends the callback that revokes a holder's turn, unless it has been
// taken.
func appendRevoke(revokes []func(error), w *waiter) []func(error) {
	if revoke := w.takeRevoke(); revoke != nil {
		revokes = append(revokes, revoke)
	}
	return revokes
}

// nextStamp returns the number of the next ticket: the time, but always greater than the
// last number, whatever the clock does.
func nextStamp(now time.Time, last uint64) uint64 {
	return max(uint64(max(now.UnixMicro(), minStamp)), last+1)
}

// yield lets the waiter that was just admitted run at once. Its goroutine is the next one
// of this thread. But the leaving holder still has work to do, during which nobody would
// be inside.
func yield() { runtime.Gosched() }

// refuse tells the caller that its turn will not come.
func (t *ticket) refuse(err error) {
	t.out = true
	t.wake(err)
}

// refused returns the error for the caller.
//
//go:noinline
func (t *ticket) refused(err error) error {
	return &Refused{Reason: ReasonOf(err), Queue: t.Prefix, Position: t.position, Token: t.Stamp, Err: err}
}

// clientText is an address for people. It is empty if there is none, which the name of a
// lock file writes as zeros.
func clientText(client netip.AddrPort) string {
	if !client.IsValid() || client.Addr().IsUnspecified() && client.Port() == 0 {
		return ""
	}
	return client.String()
}

// isInside reports whether the ticket is known to be inside. In a paused queue, only its
// owner can say.
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
		// The wall time of the entry. It is computed from now, so that it follows a clock
		// that was set in the meantime.
		s.Entered = now.Add(t.entered - time.Since(launch)).UTC()
		s.Since = s.Entered
	}
	return s
}

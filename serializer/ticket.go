package serializer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"
)

// Ticket is one place in a queue, of this process (local) or of another one (remote). A
// store makes the remote tickets, and the engine the local ones.
type Ticket struct {
	// Ref and Key are for the store alone. Ref comes first: there, package sync/atomic can
	// use it on systems of 32 bits, too. Of two tickets with the same number, which only
	// other programs can cause, the one with the smaller Key comes first.
	Ref uint64
	Key string

	Queue  string
	Client string // as in an [Arrival]
	Rule   Rule   // while the ticket is in a queue, only the engine changes it

	// Number is the ticket's place in the order of its queue, and its token. Before a
	// local ticket has joined, only the store uses it, and the fields below.
	Number uint64

	Arrived time.Time // when the ticket was numbered, for people
	Owner   *Owner    // nil if it is not known

	in          *ticketQueue // nil unless it is in a queue
	prev, next  *Ticket      // there
	admitted    bool         // it is before the border there: it may be inside
	mostWaiting int          // how many may wait from this ticket, included, to the end; 0 means any number
	*waiter                  // nil for a remote ticket
}

// Owner is the process that a ticket belongs to.
type Owner struct {
	Name  string // for people
	Alive bool   // false for a file that no process of ours stands for
}

// waiter is the caller of [Engine.Enter] or [Engine.Join]. Its engine's lock guards it.
type waiter struct {
	engine    *Engine
	batch     [1]*Ticket // the ticket itself, for an immediate store
	state     state
	joined    bool          // the store has shown the ticket
	delivered bool          // the caller has its turn
	lost      bool          // the store has lost the ticket while its holder is inside
	noWait    bool          // Arrival.NoWait
	seenLimit int           // of its Rule, as other processes see it
	max       int           // Arrival.MaxWaiting, unless Arrival.DropOldest is set
	position  int           // how many were ahead on arrival
	entered   time.Duration // since launch
	slots     func() []string
	slot      *slot   // that it has, or tries to enter; nil without slots
	inSlot    *Ticket // inside the queue of the slot that it has, or nil
	holder    *Ticket // a turn of this engine that the caller has already, or nil
	revoke    func(error)
	context   *turnContext // nil unless it was asked for, or the turn was revoked
	requester Requester
	refusal   error         // set before the message
	ready     chan struct{} // gets one message when the wait has ended; nil unless it waits in Enter
	done      func(Turn, error)
	timer     *time.Timer // of a caller of Join, until the turn has come
	departed  *Ticket     // the next one in Engine.departed
}

// state is where a local ticket is. It only grows.
type state uint8

const (
	arriving state = iota // it is being numbered
	waiting               // in its queue
	seeking               // admitted, but without a slot
	inside                // in its queue, and admitted
	over                  // it has left or was refused
)

// launch is the origin of durations, which take a third of the memory of times.
var launch = time.Now()

// newTicket makes a local ticket with a single allocation. If it or refused were inlined,
// the stacks of waiters would be twice as large.
//
//go:noinline
func newTicket(e *Engine, a *Arrival) *Ticket {
	both := &struct {
		Ticket
		waiter
	}{}
	t := &both.Ticket
	t.waiter = &both.waiter
	t.Queue, t.Client, t.Rule = a.Queue, a.Client, a.Rule
	t.engine, t.revoke, t.requester, t.noWait = e, a.Revoke, a.Requester, a.NoWait
	t.slots, t.seenLimit = a.Slots, a.Rule.Limit
	if a.DropOldest {
		t.mostWaiting = a.MaxWaiting
	} else {
		t.max = a.MaxWaiting
	}
	for _, turn := range a.Holds {
		if held, _ := turn.(*Ticket); held != nil && held.engine == e {
			t.holder = held
		}
	}
	return t
}

// Holder returns the ticket of a turn that the caller of a local ticket has already, in
// another queue of the same engine, or nil. It may have left since.
func (t *Ticket) Holder() *Ticket { return t.holder }

// NewTicket makes a local ticket without a caller, to test a [Store] that no engine follows.
func NewTicket(a Arrival) *Ticket { return newTicket(nil, &a) }

// Local reports whether the ticket is of this process.
func (t *Ticket) Local() bool { return t.waiter != nil }

// before reports whether the ticket comes before another. The order is strict, and does not
// change while the ticket is in a queue.
func (t *Ticket) before(o *Ticket) bool {
	lost := t.Local() && t.lost
	switch {
	case lost != (o.Local() && o.lost):
		return lost
	case t.Number != o.Number:
		return t.Number < o.Number
	}
	return t.Key < o.Key
}

// Token implements [Turn].
func (t *Ticket) Token() uint64 { return t.Number }

// Position implements [Turn].
func (t *Ticket) Position() int { return t.position }

// Leave implements [Turn].
func (t *Ticket) Leave() { t.engine.leave(t) }

// String describes the ticket in one line.
func (t *Ticket) String() string { return fmt.Sprintf("ticket %d of queue %q", t.Number, t.Queue) }

// MarshalText is String, for JSON and logs.
func (t *Ticket) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// SetCaller implements [Turn].
func (t *Ticket) SetCaller(requester Requester, revoke func(cause error)) {
	t.engine.mu.Lock()
	defer t.engine.mu.Unlock()
	t.requester, t.revoke = requester, revoke
	if t.context != nil && t.context.Err() != nil {
		t.revokeLocked(context.Cause(t.context))
	}
}

// turnContext is that of [Turn.Context].
type turnContext struct {
	context.Context
	cancel context.CancelCauseFunc
}

// Context implements [Turn].
func (t *Ticket) Context() context.Context {
	t.engine.mu.Lock()
	defer t.engine.mu.Unlock()
	return t.contextLocked().Context
}

func (t *Ticket) contextLocked() *turnContext {
	if t.context == nil {
		ctx, cancel := context.WithCancelCause(context.Background())
		t.context = &turnContext{ctx, cancel}
		if t.state == over {
			cancel(ErrLeft)
		}
	}
	return t.context
}

// isFull reports whether too many wait for the ticket to join them.
func (t *Ticket) isFull(waiting int) bool { return t.max > 0 && waiting >= t.max }

// enterLocked lets the caller in.
func (t *Ticket) enterLocked() {
	t.state, t.entered = inside, time.Since(launch)
	t.wakeLocked(nil)
}

// wakeLocked ends the wait of the caller, with the turn if refusal is nil.
func (t *Ticket) wakeLocked(refusal error) {
	t.refusal = refusal
	if t.ready != nil {
		t.ready <- struct{}{}
	} else if t.done != nil {
		go func() { t.done(t.engine.outcome(t)) }()
	}
}

// revokeLocked takes the turn back from a holder, but only once.
func (t *Ticket) revokeLocked(cause error) {
	t.contextLocked().cancel(cause) // only the first cause counts
	revoke := t.revoke
	t.revoke = nil
	if revoke != nil {
		go revoke(cause)
	}
}

// refused returns the error for the caller.
//
//go:noinline
func (t *Ticket) refused(err error) error {
	if errors.Is(err, ErrQueueName) {
		return err
	}
	r := &Refused{Reason: ReasonOf(err), Queue: t.Queue, Position: t.position, Err: err}
	if t.joined { // otherwise, the store may be numbering it at this moment
		r.Token = t.Number
	}
	return r
}

// describeLocked describes the ticket for people.
func (t *Ticket) describeLocked(now time.Time) TicketState {
	s := TicketState{
		Token:   strconv.FormatUint(t.Number, 10),
		State:   StateWaiting,
		Arrived: t.Arrived.UTC(),
		Client:  addressText(t.Client),
	}
	if t.Owner != nil {
		s.Owner, s.Alive = t.Owner.Name, new(t.Owner.Alive)
	}
	if t.admitted && !(t.Local() && t.state == seeking) {
		s.State = StateInside
	}
	s.Since = s.Arrived
	if !t.Local() {
		return s
	}
	s.Requester = t.requester
	if t.state == inside {
		s.Slot = t.Slot()
		s.Entered = wallTime(t.entered, now) // numbers may be ahead of the clock
		if s.Entered.Before(s.Arrived) {
			s.Entered = s.Arrived
		}
		s.Since = s.Entered
	}
	return s
}

// wallTime is the time of day of a moment since launch. It is computed from now, so that it
// follows a clock that was set in the meantime. It has no fractions of milliseconds, in which
// two lists would differ: now comes from two clocks, read one after the other.
func wallTime(moment time.Duration, now time.Time) time.Time {
	return now.Add(moment - now.Sub(launch)).UTC().Truncate(time.Millisecond)
}

// addressText is an address for people. It is empty if there is none, which the name of a
// lock file writes as zeros.
func addressText(text string) string {
	client, err := netip.ParseAddrPort(text)
	if err != nil || client.Addr().IsUnspecified() && client.Port() == 0 {
		return ""
	}
	return client.String()
}

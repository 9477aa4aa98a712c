package etcd

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/queue"
)

// ticket is one place in a queue, of this process or of another. One of this
// process is the engine's [serializer.Turn]. Engine.mu guards everything but listed,
// ready and left.
type ticket struct {
	queue.Item[*ticket]
	key     string
	inside  bool  // of a remote ticket in a paused queue: its owner says that it is inside
	doomed  bool  // of a remote ticket: its owner will give it up, because the queue is full
	rev     int64 // the revision at which the key was created: the ticket's number
	*waiter       // nil for a remote ticket
}

// waiter is the caller of Enter that has the ticket.
type waiter struct {
	arrival serializer.Arrival
	session *session
	queue   *ticketQueue
	value   string        // of the key
	slot    uint64        // in the key; see ticketQueue.slot
	after   int64         // up to this revision, the key was that of another ticket
	listed  chan struct{} // has room for its one message: the position is fixed
	ready   chan error    // has room for its one message: nil for the turn, or why it will not come
	left    atomic.Bool

	snapshot bool // the request for the ticket also reads the whole queue
	joined   bool // the ticket is known to exist, and listed
	refused  bool // the caller has its error, or has given up
	granted  bool // the caller has its turn
	told     bool // granted is written to the key, or about to be, because the queue is paused
	vanished bool // somebody else deleted the key
	doubtful bool // a request for the ticket was not answered: the key must not be used again
	position int
	entered  time.Time
}

// newTicketLocked makes a local ticket that etcd does not know yet.
func (s *session) newTicketLocked(a serializer.Arrival) *ticket {
	if a.Joined == nil {
		a.Joined = func() {}
	}
	q := s.queueLocked(a.Queue)
	t := &ticket{waiter: &waiter{
		arrival: a, session: s, queue: q, slot: q.slotLocked(), after: s.deleted,
		listed: make(chan struct{}, 1), ready: make(chan error, 1),
	}}
	t.key = s.engine.keys.ticket(a.Queue, s.id, t.slot)
	t.Rule = a.Rule
	if a.DropOldest {
		t.MaxWaiting = a.MaxWaiting
	}
	s.tickets[t.key] = t
	s.engine.tickets++
	return t
}

// Local implements [queue.Element].
func (t *ticket) Local() bool { return t.waiter != nil }

// Before implements [queue.Element].
func (t *ticket) Before(o *ticket) bool { return t.rev < o.rev }

// Token implements [serializer.Turn].
func (t *ticket) Token() uint64 { return uint64(t.rev) }

// Position implements [serializer.Turn].
func (t *ticket) Position() int { return t.position }

// Leave implements [serializer.Turn].
func (t *ticket) Leave() {
	if !t.left.Swap(true) {
		t.session.engine.leave(t)
	}
}

// grantLocked gives the caller its turn.
func (t *ticket) grantLocked() {
	t.granted, t.entered = true, time.Now()
	t.ready <- nil
}

// refuseLocked gives the caller the reason why its turn will not come.
func (t *ticket) refuseLocked(err error) {
	if t.granted || t.refused {
		return
	}
	t.refused = true
	t.ready <- err
}

// describeLocked adds to a ticket's state what only this process knows.
func (t *ticket) describeLocked(state *serializer.TicketState, now time.Time) {
	state.Requester = t.arrival.Requester
	if t.granted {
		state.Entered = now.Add(-time.Since(t.entered)).UTC()
		state.Since = state.Entered
	}
}

// takeRevokeLocked returns the callback that revokes the caller's turn, but only once.
// After that, it returns one that does nothing.
func (t *ticket) takeRevokeLocked() func(error) {
	revoke := t.arrival.Revoke
	t.arrival.Revoke = nil
	if revoke == nil {
		return func(error) {}
	}
	return revoke
}

// await returns nil once the turn has come, and otherwise why it has not.
func (t *ticket) await(ctx context.Context) error {
	for {
		select {
		case <-t.listed:
			t.arrival.Joined()
		case err := <-t.ready:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// notifyListed calls Joined if the ticket was listed and await has not noticed it.
func (t *ticket) notifyListed() {
	select {
	case <-t.listed:
		t.arrival.Joined()
	default:
	}
}

// refusal is the error that the caller gets.
func refusal(a serializer.Arrival, position int, token uint64, err error) error {
	return &serializer.Refused{Reason: serializer.ReasonOf(err), Queue: a.Queue, Position: position, Token: token, Err: err}
}

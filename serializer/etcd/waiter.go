package etcd

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// waiter is a ticket of this process: its entry in the queue, and the caller who
// waits or is inside. It is the engine's [serializer.Turn]. The engine's lock
// guards everything but ready and left.
type waiter struct {
	entry
	arrival serializer.Arrival
	session *session
	queue   *queue
	value   string     // of the key
	slot    uint64     // in the key; see queue.slot
	after   int64      // up to this revision the key was another ticket's
	ready   chan error // one message: nil for the turn, or why it will not come
	left    atomic.Bool

	snapshot bool // the request for the ticket also reads the whole queue
	joined   bool // the ticket is known to exist, and listed
	refused  bool // the caller has its error, or has given up
	granted  bool // the caller has its turn
	revoked  bool // the caller was asked to leave
	vanished bool // somebody else deleted the key
	doubtful bool // a request for the ticket had no answer: do not use the key again
	position int
	entered  time.Time
}

// Token implements [serializer.Turn].
func (w *waiter) Token() uint64 { return uint64(w.rev) }

// Position implements [serializer.Turn].
func (w *waiter) Position() int { return w.position }

// Leave implements [serializer.Turn].
func (w *waiter) Leave() {
	if !w.left.Swap(true) {
		w.session.engine.leave(w)
	}
}

// grant gives the caller its turn.
func (w *waiter) grant() {
	w.granted, w.entered = true, time.Now()
	w.ready <- nil
}

// refuse gives the caller the reason why its turn will not come.
func (w *waiter) refuse(err error) {
	if w.granted || w.refused {
		return
	}
	w.refused = true
	w.ready <- err
}

// describe adds to a ticket's state what only this process knows.
func (w *waiter) describe(t *serializer.TicketState, now time.Time) {
	t.Requester = w.arrival.Requester
	if w.granted {
		t.Entered = now.Add(-time.Since(w.entered)).UTC()
		t.Since = t.Entered
	}
}

// deletedWaiting reports whether somebody else deleted the ticket while it
// waited. It is not listed then.
func (w *waiter) deletedWaiting() bool { return w.vanished && !w.granted }

// takeRevoke returns the callback that revokes the caller's turn, once.
func (w *waiter) takeRevoke() func(error) {
	if w.revoked || w.arrival.Revoke == nil {
		return nil
	}
	w.revoked = true
	return w.arrival.Revoke
}

// await returns nil once the turn has come, else the reason why it has not.
func (w *waiter) await(ctx context.Context) error {
	select {
	case err := <-w.ready:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// refusal is the error that the caller gets.
func refusal(a serializer.Arrival, position int, token uint64, err error) error {
	return &serializer.Refused{Reason: serializer.ReasonOf(err), Queue: a.Queue, Position: position, Token: token, Err: err}
}

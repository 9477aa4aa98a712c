package serializer

import (
	"context"
	"time"
)

// A caller that leaves by [Turn.LeaveAt] is gone, but its ticket stays inside for a while. The
// store and the other processes see an ordinary holder. So no clock is compared between
// processes: each measures the holds of its own tickets.

// LeaveAt implements [Turn].
func (t *Ticket) LeaveAt(moment time.Time, ended func()) {
	if t.engine.hold(t, moment, ended) {
		return
	}
	t.engine.leave(t)
	if ended != nil {
		go ended()
	}
}

// hold keeps a ticket inside without its caller until a moment. It returns false if the turn
// ends now.
func (e *Engine) hold(t *Ticket, until time.Time, ended func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	left := time.Until(until)
	if left <= 0 || t.state != inside || t.isRevokedLocked() {
		return false
	}
	if t.heldUntil == 0 {
		t.heldUntil, t.ended = until.Sub(launch), ended
		t.timer = time.AfterFunc(left, func() { e.leave(t) })
	}
	return true
}

// Reenter implements [Turn].
func (t *Ticket) Reenter() bool {
	t.engine.mu.Lock()
	defer t.engine.mu.Unlock()
	if t.state != inside || t.heldUntil != 0 && (t.isRevokedLocked() || !t.timer.Stop()) {
		return false
	}
	t.heldUntil, t.ended = 0, nil
	return true
}

// SetCaller implements [Turn].
func (t *Ticket) SetCaller(requester Requester, revoke func(cause error)) {
	t.engine.mu.Lock()
	defer t.engine.mu.Unlock()
	t.requester, t.revoke = requester, revoke
	if t.isRevokedLocked() {
		t.revokeLocked(context.Cause(t.context))
	}
}

func (t *Ticket) isRevokedLocked() bool { return t.context != nil && t.context.Err() != nil }

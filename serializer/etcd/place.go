package etcd

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// place is a ticket of this process: its entry in the line and the caller who
// waits for it. It is the Turn of this engine. Everything but ready and left
// belongs to the engine's lock.
type place struct {
	entry
	arrival serializer.Arrival
	session *session
	line    *line
	value   string     // of the key
	slot    uint64     // in the key; see line.slot
	after   int64      // the key as it stood at this revision was another ticket's
	ready   chan error // one message: nil for the turn, or why there is none
	left    atomic.Bool

	survey   bool // the request for the ticket also asks for the whole queue
	joined   bool // the ticket is known to exist, and in the line
	refused  bool // told so, or no longer there to be told
	granted  bool // told that its turn has come
	revoked  bool // told to leave again
	vanished bool // somebody else deleted the key
	doubtful bool // a request for the ticket had no answer: the key must not be used again
	position int
	entered  time.Time
}

// Token implements [serializer.Turn].
func (p *place) Token() uint64 { return uint64(p.rev) }

// Position implements [serializer.Turn].
func (p *place) Position() int { return p.position }

// Leave implements [serializer.Turn].
func (p *place) Leave() {
	if !p.left.Swap(true) {
		p.session.engine.leave(p)
	}
}

// grant tells the caller that its turn has come.
func (p *place) grant() {
	p.granted, p.entered = true, time.Now()
	p.ready <- nil
}

// refuse tells the caller that its turn will not come.
func (p *place) refuse(err error) {
	if p.granted || p.refused {
		return
	}
	p.refused = true
	p.ready <- err
}

// describe says of a ticket what only this process knows.
func (p *place) describe(t *serializer.TicketState, now time.Time) {
	t.Requester = p.arrival.Requester
	if p.granted {
		t.Entered = now.Add(-time.Since(p.entered)).UTC()
		t.Since = t.Entered
	}
}

// missing reports whether the ticket was deleted by somebody else while it
// waited. It is not in the line then.
func (p *place) missing() bool { return p.vanished && !p.granted }

// takeRevoke returns the callback for the caller inside, once.
func (p *place) takeRevoke() func(error) {
	if p.revoked || p.arrival.Revoke == nil {
		return nil
	}
	p.revoked = true
	return p.arrival.Revoke
}

// await returns nil once the turn has come, and else why it has not.
func (p *place) await(ctx context.Context) error {
	select {
	case err := <-p.ready:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// refusal is the error that the caller gets.
func refusal(a serializer.Arrival, position int, token uint64, err error) error {
	return &serializer.Refused{Reason: serializer.ReasonOf(err), Queue: a.Queue, Position: position, Token: token, Err: err}
}

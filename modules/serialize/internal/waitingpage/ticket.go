package waitingpage

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Ticket is the place of one browser in a queue. It stays in line without a connection
// and without a goroutine, while its browser asks for the place again and again. One that
// ends unclaimed is remembered for a while, so that its browser learns why.
//
// # Absent browsers
//
// An absent browser must not keep a queue idle. With each answer it is set a time to be
// back. A turn is kept until then, and not at all if that time has passed. So the times of
// many absent browsers do not add up: a few seconds after the last of them was here, none
// of their places delays anybody. In line, a place is kept for longer: until hold has
// passed since its browser was here.
type Ticket struct {
	Caller
	queue string
	hold  time.Duration
	id    string
	book  *Book

	decision chan struct{}         // closed when it does not wait any more
	proven   atomic.Bool           // the browser has sent its cookie back
	place    atomic.Pointer[Place] // when the queue was last read, or nil

	mu      sync.Mutex
	state   state
	open    int       // requests of the browser that wait at this moment
	back    time.Time // when the browser has to be back for its turn
	until   time.Time // when the place is given up, or forgotten when it is over
	timer   *time.Timer
	wait    serializer.Wait
	turn    serializer.Turn
	err     error       // why it is over
	revoked error       // the refusal, if the turn was taken back
	heir    func(error) // takes the turn back from the request that has claimed it
}

// state is where a ticket is. It only grows.
type state uint8

const (
	waiting state = iota
	ready         // the turn has come, and waits for the browser
	over          // claimed, refused, or given up
)

// Caller is for whom a ticket is taken.
type Caller interface {
	serializer.Requester

	// RevokedAt is when the turn was taken back from the request that has claimed it, or zero.
	RevokedAt() time.Time

	// Turn is called when the turn has come. An error refuses it.
	Turn(serializer.Turn) error

	// End is called when the ticket has left the queue unclaimed.
	End(why error)
}

// Errors of tickets.
var (
	ErrWaiting = errors.New("still waiting in the queue")
	ErrAway    = errors.New("the browser has not come back for its place in the queue")
	ErrNone    = errors.New("the browser has no place in the queue")
)

const (
	// proofTime is how long a place is kept for a browser that has not sent its cookie back.
	proofTime = 3 * time.Second

	// A question for the place is answered after askTime, or when the page has to be
	// reloaded. The browser has to be back callTime after the answer.
	askTime, callTime = 2 * time.Second, 2 * time.Second

	// A reload without JavaScript is announced. It may be late by grace.
	grace                    = time.Second
	firstRefresh, maxRefresh = 2 * time.Second, 5 * time.Second
)

// Join takes a ticket in a queue, for a browser whose request waits in Await.
func (b *Book) Join(engine *serializer.Engine, a serializer.Arrival, hold time.Duration, caller Caller) *Ticket {
	t := &Ticket{Caller: caller, queue: a.Queue, hold: hold, book: b, open: 1, decision: make(chan struct{})}
	t.timer = time.AfterFunc(hold, t.expire) // it does nothing while a request waits
	b.add(t)
	a.Requester, a.Revoke = t, t.revoke
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wait = engine.Join(a, t.decided)
	return t
}

// Await waits for the turn with the request that has joined, but not for longer than a
// duration. If its client hangs up, the ticket leaves.
func (t *Ticket) Await(ctx context.Context, atMost time.Duration) {
	t.attend(ctx, atMost, proofTime, proofTime)
}

// Ask answers the question of a page for its place, after a moment if it may stay as it
// is. It reports whether the page has to be reloaded.
func (t *Ticket) Ask(ctx context.Context) (reload bool) {
	t.mu.Lock()
	t.open++
	t.mu.Unlock()
	return t.attend(ctx, askTime, callTime, t.hold)
}

// attend is a request of the browser that waits. It reports whether that is decided.
func (t *Ticket) attend(ctx context.Context, atMost, soon, later time.Duration) (decided bool) {
	t.pause(ctx, atMost)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open--
	if ctx.Err() != nil && !t.proven.Load() {
		soon, later = 0, 0
	}
	if t.state == waiting {
		t.seenLocked(soon, later)
	} else {
		t.scheduleLocked()
	}
	return t.state != waiting
}

// pause waits for the decision, but not for longer than a duration.
func (t *Ticket) pause(ctx context.Context, atMost time.Duration) (decided bool) {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	select {
	case <-t.decision:
		return true
	case <-ctx.Done():
		return false
	}
}

// Claim takes the turn over for a request of the browser. The error is [ErrWaiting] if it
// has not come; then the browser has to come again after Refresh. Any other error is why
// the ticket is over.
func (t *Ticket) Claim(revoke func(error)) (serializer.Turn, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == waiting {
		if t.proven.Load() {
			t.seenLocked(t.Refresh()+grace, t.hold)
		}
		return nil, ErrWaiting
	}
	t.timer.Stop()
	t.book.remove(t)
	if t.state == ready && t.revoked == nil {
		t.state, t.heir, t.err = over, revoke, ErrNone
		return t.turn, nil
	}
	return nil, cmp.Or(t.err, t.revoked)
}

// Refresh is how soon a browser without JavaScript comes again, in whole seconds. The
// first time is soon, to prove its cookie.
func (t *Ticket) Refresh() time.Duration {
	if !t.proven.Load() {
		return firstRefresh
	}
	return min(max(t.hold/3, time.Second).Truncate(time.Second), maxRefresh)
}

// seenLocked notes that the browser was here, and has to be back soon for its turn, and
// not much later for its place in line.
func (t *Ticket) seenLocked(soon, later time.Duration) {
	now := time.Now()
	t.back, t.until = now.Add(soon), now.Add(max(soon, later))
	t.scheduleLocked()
}

// scheduleLocked sets the timer, if no request of the browser waits.
func (t *Ticket) scheduleLocked() {
	if t.state == ready {
		t.until = t.back
	}
	if t.open == 0 {
		t.timer.Reset(time.Until(t.until))
	}
}

// expire gives the place up, or forgets a ticket that is over.
func (t *Ticket) expire() {
	t.mu.Lock()
	early := t.open > 0 || time.Now().Before(t.until) // the browser was here meanwhile
	state, wait := t.state, t.wait
	t.mu.Unlock()
	switch {
	case early:
	case state == waiting:
		wait.GiveUp(ErrAway)
	case state == ready:
		t.end(ErrAway)
	default:
		t.book.remove(t)
	}
}

// decided notes how the wait in the queue has ended.
func (t *Ticket) decided(turn serializer.Turn, err error) {
	if err == nil {
		err = t.Turn(turn)
	}
	t.mu.Lock()
	t.turn = turn
	switch {
	case err != nil:
	case t.revoked != nil:
		err = t.revoked
	case t.open == 0 && !time.Now().Before(t.back):
		err = ErrAway
	default:
		if t.open > 0 {
			t.back = time.Now().Add(callTime)
		}
		t.state = ready
		close(t.decision)
		t.scheduleLocked()
	}
	t.mu.Unlock()
	if err != nil {
		t.end(err)
	}
}

// revoke takes the turn back, from whatever request has claimed it.
func (t *Ticket) revoke(cause error) {
	refusal := &serializer.Refused{Reason: serializer.ReasonOf(cause), Queue: t.queue, Err: cause}
	t.mu.Lock()
	t.revoked = refusal
	state, heir := t.state, t.heir
	t.mu.Unlock()
	if heir != nil {
		heir(cause)
	} else if state == ready {
		t.end(refusal)
	}
}

// end ends a ticket that nobody has claimed.
func (t *Ticket) end(why error) {
	t.mu.Lock()
	ended, turn := t.state != over, t.turn
	if ended {
		if t.state == waiting {
			close(t.decision)
		}
		t.state = over
		t.err, t.until = why, time.Now().Add(max(t.hold, proofTime))
		t.scheduleLocked()
	}
	t.mu.Unlock()
	if !ended {
		return
	}
	if turn != nil {
		turn.Leave()
	}
	t.End(why)
}

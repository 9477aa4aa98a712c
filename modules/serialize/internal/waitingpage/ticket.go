package waitingpage

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/telemetry"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// Ticket is that of one browser in a queue. It stays in line without a connection and
// without a goroutine, while its browser asks for its place again and again. One that ends
// unclaimed is remembered for a while, so that its browser learns why.
//
// # Absent browsers
//
// An absent browser must not keep a queue idle. So when the turn has come, it waits only
// until awayTime has passed since the browser was here. The times of many absent browsers
// do not add up: awayTime after the last of them was here, no turn waits for any of them.
// In line, a browser that has sent its cookie back keeps its place for longer: until hold
// has passed.
type Ticket struct {
	rule     serializer.Rule
	hold     time.Duration
	id       string // in the cookie
	book     *Book
	engine   Engine
	report   *telemetry.Reporter
	capacity int // how many may be inside; 0 is not known

	about    telemetry.Request     // the first one of the browser; mu guards what changes of it
	decision chan struct{}         // closed when it does not wait any more
	proven   atomic.Bool           // the browser has sent its cookie back
	place    atomic.Pointer[Place] // when the queue was last read, or nil

	mu    sync.Mutex // guards the fields below
	seen  time.Time  // when the last request of the browser ends, or has ended; or the ticket
	timer *time.Timer
	wait  serializer.Wait
	turn  serializer.Turn     // nil until it has come
	came  time.Time           // when it has come
	err   error               // why the ticket is over, or nil
	heir  *serializer.Arrival // the request that has claimed the turn, or nil
}

// Engine is where tickets are taken, until Release.
type Engine interface {
	Places() *Places
	Release()
}

// Errors of tickets.
var (
	errWaiting = errors.New("still waiting in the queue")
	errAway    = errors.New("the browser has not come back for its place in the queue")
	errNone    = errors.New("the browser has no place in the queue")
)

const (
	awayTime    = 3 * time.Second
	askTime     = 2 * time.Second // until a question for the place is answered, if nothing happens
	refreshTime = 2 * time.Second // until a page without JavaScript is loaded again

	maxText = 256 // of what a client can make a ticket take, in bytes
)

// join takes a ticket for the browser of a visit.
func (b *Book) join(ctx context.Context, v *Visit) (*Ticket, error) {
	engine, err := v.Acquire()
	if err != nil {
		return nil, err
	}
	t := &Ticket{
		rule: v.Rule, hold: max(v.Page.hold, awayTime), id: rand.Text(), book: b, engine: engine,
		report: v.Report, capacity: v.Capacity, decision: make(chan struct{}), seen: time.Now(),
		about: telemetry.Request{Entry: v.About.Entry, Described: v.Requester.Request()},
	}
	// Each text is a part of what the client sent, and would keep the whole.
	d := &t.about.Described
	for _, text := range []*string{&d.Method, &d.Host, &d.Path, &d.ClientIP} {
		*text = strings.ToValidUTF8(strings.Clone((*text)[:min(len(*text), maxText)]), "")
	}
	b.tickets.Store(t.id, t)
	a := v.Arrival
	a.Requester, a.Revoke = t, t.revoke
	t.report.Waits(ctx, &t.about)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer = time.AfterFunc(awayTime, t.expire)
	t.wait = engine.Places().Join(a, t.decided)
	return t, nil
}

// await waits until it is decided, with a request of the browser, but not for longer than a
// duration.
func (t *Ticket) await(ctx context.Context, atMost time.Duration) (decided bool) {
	t.touch(atMost)
	defer t.touch(0)
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	select {
	case <-t.decision:
		return true
	case <-ctx.Done():
		return false
	}
}

// touch notes that the browser is here for a duration, unless it is decided: a turn waits
// no longer for a browser that asks for its place again.
func (t *Ticket) touch(stay time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.turn == nil && t.err == nil {
		t.seen = time.Now().Add(stay)
	}
	t.scheduleLocked()
}

// claim takes the turn over for a request of the browser. The error is errWaiting if it has
// not come, errNone if there is no ticket for the request, and otherwise why it is over.
func (t *Ticket) claim(v *Visit) (serializer.Turn, error) {
	if t == nil || !t.rule.AsStrictAs(v.Rule) { // others may be inside where the request has to be alone
		return nil, errNone
	}
	t.touch(0)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.turn == nil && t.err == nil {
		return nil, errWaiting
	}
	t.book.tickets.Delete(t.id)
	if t.err == nil {
		t.heir = &v.Arrival
		t.about.Token, t.about.Position = t.turn.Token(), t.turn.Position()
		t.report.Waited(&t.about, nil)
		v.About.Late = t.about.Since.Sub(t.came)
	}
	v.About.Waited, v.About.Since = t.about.Waited, t.about.Since
	turn, err := t.turn, t.err
	t.err = errNone
	return turn, err
}

// scheduleLocked sets the timer.
func (t *Ticket) scheduleLocked() { t.timer.Reset(time.Until(t.deadlineLocked())) }

// deadlineLocked is when the ticket is given up, or forgotten if it is over.
func (t *Ticket) deadlineLocked() time.Time {
	if !t.proven.Load() || t.turn != nil && t.err == nil {
		return t.seen.Add(awayTime)
	}
	return t.seen.Add(t.hold)
}

// expire gives the ticket up, or forgets it, unless the browser was here meanwhile.
func (t *Ticket) expire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case time.Now().Before(t.deadlineLocked()):
		t.scheduleLocked()
	case t.err != nil:
		t.book.tickets.Delete(t.id)
	case t.turn != nil:
		t.endLocked(errAway)
	default:
		t.wait.GiveUp(errAway)
	}
}

// decided notes how the wait in the queue has ended.
func (t *Ticket) decided(turn serializer.Turn, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn = turn
	if turn != nil {
		t.came = time.Now()
	}
	if err = cmp.Or(t.err, err); err != nil {
		t.endLocked(err)
	}
	t.scheduleLocked() // if nobody is here for the turn, it ends at once
	close(t.decision)
}

// revoke takes the turn back, from whatever request has claimed it.
func (t *Ticket) revoke(cause error) {
	t.mu.Lock()
	heir := t.heir
	if t.err == nil {
		t.err = &serializer.Refused{Reason: serializer.ReasonOf(cause), Queue: t.about.Queue, Err: cause}
		if t.turn != nil { // else decided ends it
			t.endLocked(t.err)
		}
	}
	t.mu.Unlock()
	if heir != nil {
		heir.Revoke(cause)
	}
}

// endLocked ends a ticket that nobody has claimed.
func (t *Ticket) endLocked(why error) {
	t.err, t.seen = why, time.Now()
	t.scheduleLocked()
	if errors.Is(why, errAway) { // else its browser may come, and be refused
		t.report.Absent(t.came)
	}
	t.report.Waited(&t.about, why)
	turn := t.turn
	go func() { // without the lock
		if turn != nil {
			turn.Leave()
		}
		t.engine.Release()
	}()
}

// Request implements [serializer.Requester].
func (t *Ticket) Request() serializer.Request { return t.about.Request() }

// Served is the request that has claimed the turn, or the ticket itself.
func (t *Ticket) Served() serializer.Requester {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.heir != nil {
		return t.heir.Requester
	}
	return t
}

// Interface guards
var _ serializer.Requester = (*Ticket)(nil)

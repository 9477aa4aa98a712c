package waitingpage

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orderly-http/caddy-orderly/modules/internal/engines"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/telemetry"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// Ticket is that of one browser in a queue. It stays in line without a connection and
// without a goroutine, while its browser asks for its place again and again. One that ends
// unclaimed is remembered for a while, so that its browser learns why.
//
// It is in one of five states, and only moves forward: registered, if it comes before an [Opening],
// waiting, offered, visiting, and over, or over at once. [absences] says for how
// long an offered turn waits for its browser.
type Ticket struct {
	line    atomic.Pointer[Line] // for which it was taken; a draw changes it
	id      string               // in the cookie
	book    *Book
	engine  *engines.Ref // with a reference for the ticket
	opening *Opening     // of its queue, or nil

	about    telemetry.Request // the first one of the browser; mu guards what changes of it
	decision chan struct{}     // closed when it does not wait any more
	proven   atomic.Bool       // the browser has sent its cookie back
	place    Standing
	listed   int // its number in the list for the draw; 0 if there was none. It is set before the ticket joins its queue

	mu      sync.Mutex // guards the fields below
	rule    serializer.Rule
	state   state
	here    int           // how many requests of the browser are under way; none is absent then
	seen    time.Time     // when the last one that counts was here
	gap     time.Duration // between the last two
	due     time.Time     // when the next one is, if it was told so before an opening
	timer   *time.Timer   // nil once the turn was claimed for one request, or a visit is over
	wait    serializer.Wait
	turn    serializer.Turn // from offered on, until the ticket leaves it
	came    time.Time       // when it was offered
	wasHere bool            // the browser, at that time
	left    time.Duration   // at that time, of what absent browsers may cost the queue
	allowed time.Duration   // in all
	err     error           // why the ticket is over, or is about to be; else nil
	visit   *visit          // from visiting on
}

type state uint8

const (
	registered state = iota // it joins its queue later
	waiting                 // in line
	offered                 // the turn has come, and waits for the browser, or none comes
	visiting                // all requests of the browser have it; see visit
	over                    // the browser may come and learn why, unless a request has the turn
)

// Errors of tickets.
var (
	errWaiting = errors.New("still waiting in the queue")
	errAway    = errors.New("the browser has not come back for its place in the queue")
	errNone    = errors.New("the browser has no place in the queue")
)

const (
	leastHold   = 3 * time.Second // a page without JavaScript comes again every two seconds
	proofTime   = 9 * time.Second // for a cookie to come back on a slow network
	askTime     = 2 * time.Second // until a question for the place is answered, if nothing happens
	refreshTime = 2 * time.Second // until a page without JavaScript is loaded again

	maxText = 256 // of what a client can make a ticket take, in bytes
)

// join takes a ticket for the browser of a navigation, which is under way until depart. With
// proven, it came with the cookie of an earlier ticket, which is over. An id is that of the
// browser: if another of its requests has taken a ticket meanwhile, join returns that.
func (b *Book) join(ctx context.Context, n *Navigation, id string, proven bool) (*Ticket, error) {
	engine, err := n.Engine.Acquire()
	if err != nil {
		return nil, err
	}
	t := &Ticket{
		rule: n.Rule, id: cmp.Or(id, n.newID()), book: b, engine: engine, opening: n.Opening,
		decision: make(chan struct{}), here: 1, seen: time.Now(),
		about: telemetry.Request{Queue: n.Queue, Described: n.Requester.Request()},
	}
	t.line.Store(n.Line)
	t.proven.Store(proven)
	// Each text is a part of what the client sent, and would keep the whole.
	d := &t.about.Described
	for _, text := range []*string{&d.Method, &d.Host, &d.Path, &d.ClientIP} {
		*text = strings.ToValidUTF8(strings.Clone((*text)[:min(len(*text), maxText)]), "")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if other, loaded := b.tickets.LoadOrStore(t.id, t); loaded {
		engine.Release()
		t := other.(*Ticket)
		t.locked(t.arriveLocked)
		return t, nil
	}
	t.timer = time.AfterFunc(proofTime, t.expire)
	early, err := n.Opening.register(t, n)
	switch {
	case err != nil:
		t.state, t.err = over, err
		close(t.decision) // for other requests of the browser
		b.remove(t)
		engine.Release()
		return nil, err
	case !early:
		t.joinLocked(ctx, n.Arrival)
	}
	return t, nil
}

// joinLocked takes a place in the queue.
func (t *Ticket) joinLocked(ctx context.Context, a serializer.Arrival) {
	a.Requester, a.Revoke = t, t.revoke
	t.state = waiting
	t.line.Load().Report.Waits(ctx, &t.about)
	t.wait = t.engine.Join(a, t.decided)
}

// await waits until it is decided, with a request of the browser, but not for longer than a
// duration.
func (t *Ticket) await(ctx context.Context, atMost time.Duration) (decided bool) {
	t.locked(t.arriveLocked)
	defer t.locked(t.departLocked)
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	select {
	case <-t.decision:
		return true
	case <-ctx.Done():
		return false
	}
}

// locked calls a method that needs the lock.
func (t *Ticket) locked(do func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	do()
}

// arriveLocked notes that a request of the browser has come.
func (t *Ticket) arriveLocked() {
	if t.here++; t.here > 1 || !t.countsLocked() {
		return
	}
	if t.gap = time.Since(t.seen); t.gap > allowance { // no network takes so long
		t.gap = 0
	}
}

// departLocked notes that a request of the browser is answered.
func (t *Ticket) departLocked() {
	t.here--
	if t.countsLocked() {
		t.seen = time.Now()
	}
	t.scheduleLocked()
}

// countsLocked reports whether a request prolongs anything. An offered turn waits no longer
// for a browser that asks for its place again and again: only its first answer since then counts.
func (t *Ticket) countsLocked() bool {
	return t.state != over && (t.state != offered || !t.seen.After(t.came))
}

// claim takes the turn over for a request of the browser. The error is errWaiting if it has
// not come, errNone if there is no ticket for the request, and otherwise why it is over.
func (t *Ticket) claim(n *Navigation) (serializer.Turn, error) {
	if t == nil {
		return nil, errNone
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state > registered && !t.suitsLocked(n) {
		t.book.remove(t)
		t.endLocked(errNone)
		return nil, errNone
	}
	t.arriveLocked()
	defer t.departLocked()
	switch t.state {
	case registered, waiting:
		return nil, errWaiting
	case offered:
		t.absences().settle(t.absent(), t.allowed, claimed)
		t.about.Token, t.about.Position = t.turn.Token(), t.turn.Position()
		t.line.Load().Report.Waited(&t.about, nil)
		n.About.Waited, n.About.Since = t.about.Waited, t.about.Since
		if n.Line.Visits == nil || !t.proven.Load() {
			t.err = errNone // for other tabs
			t.forgetLocked()
			t.turn.SetCaller(n.Requester, n.Revoke)
			return t.turn, nil
		}
		t.beginLocked()
		fallthrough
	case visiting:
		if n.Part = t.partLocked(n.Line.Visits, n.Revoke); n.Part == nil {
			return nil, errNone
		}
		n.Part.inside = true
		n.About.Since = time.Now()
		return t.turn, nil
	}
	return nil, t.learnLocked(n)
}

// suitsLocked reports whether a request could use the turn. After a reload, the turn may lack a slot, or not
// be a visit. By another rule, others may be inside where the request has to be alone; that of visits
// changes with the reload.
func (t *Ticket) suitsLocked(n *Navigation) bool {
	line, visits := t.line.Load(), n.Line.Visits != nil
	return visits == (line.Visits != nil) && (n.Line.Slots == nil) == (line.Slots == nil) && (visits || t.rule.AsStrictAs(n.Rule))
}

// learnLocked is what a request learns of a ticket that is over. The browser shows only the
// answers of navigations, so only these use the refusal up: other tabs begin anew.
func (t *Ticket) learnLocked(n *Navigation) error {
	away := errors.Is(t.err, errAway)
	if away && time.Since(t.came) < proofTime {
		t.absences().settle(t.absent(), 0, late)
	}
	n.About.Waited, n.About.Since = t.about.Waited, t.about.Since
	anew := t.visit != nil || !away && serializer.ReasonOf(t.err) == serializer.ReasonGone // as one that has hung up
	if away || anew || n.shown {
		t.book.remove(t)
	}
	if anew {
		return errNone
	}
	return t.err
}

// verdict is what a request gets that has waited, if others of its browser have had the turn, or know
// the outcome already.
func (t *Ticket) verdict() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil || errors.Is(t.err, errNone) {
		return visitEnded(t.about.Queue)
	}
	return t.err
}

// scheduleLocked sets the timer.
func (t *Ticket) scheduleLocked() {
	if t.timer != nil {
		t.timer.Reset(time.Until(t.deadlineLocked()))
	}
}

// hold is for how long the place of an absent browser is kept.
func (t *Ticket) hold() time.Duration { return max(t.line.Load().Page.hold, leastHold) }

// deadlineLocked is when the ticket is given up, or forgotten if it is over.
func (t *Ticket) deadlineLocked() time.Time {
	proven, last := t.proven.Load(), t.seen
	if t.due.After(last) {
		last = t.due
	}
	switch {
	case t.state == visiting:
		return t.visit.end(t.seen)
	case t.state == offered && !proven:
		return t.came
	case t.state == offered:
		return absenceEnd(t.came, t.seen.Add(t.gap+t.gap/4), t.left) // no network is always as fast
	case !proven:
		return t.seen.Add(min(proofTime, t.hold()))
	case t.state == registered:
		return last.Add(max(registeredHold, t.hold()))
	}
	return last.Add(t.hold())
}

// expire gives the ticket up, or forgets it, unless the browser is or was here meanwhile.
func (t *Ticket) expire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.here > 0: // depart sets the timer
	case time.Now().Before(t.deadlineLocked()):
		t.scheduleLocked()
	default:
		t.endLocked(errAway)
	}
}

// isLateLocked reports whether the browser should have been here by a moment, by what its network needs.
func (t *Ticket) isLateLocked(at time.Time) bool {
	return at.Sub(t.seen) >= min(t.gap+t.gap/4, leastHold)
}

// decided notes how the wait in the queue has ended.
func (t *Ticket) decided(turn serializer.Turn, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn, t.state = turn, offered
	if turn != nil {
		places := 0
		if line := t.line.Load(); line.Visits != nil && t.proven.Load() {
			places = line.Capacity
		}
		t.came = time.Now()
		t.wasHere = t.here > 0 || !t.isLateLocked(t.came) // or on its way
		t.allowed, t.left = t.absences().offer(t.absent(), places)
	}
	if err = cmp.Or(t.err, err); err != nil {
		t.endLocked(err)
	}
	t.scheduleLocked()
	close(t.decision)
}

// revoke takes the turn back, from all requests that have it.
func (t *Ticket) revoke(cause error) {
	t.mu.Lock()
	var cancelled []*Part
	if t.err == nil {
		t.err = &serializer.Refused{Reason: serializer.ReasonOf(cause), Queue: t.about.Queue, Token: t.about.Token, Err: cause}
		if t.visit != nil {
			cancelled = slices.Clone(t.visit.parts)
		}
		if t.state > waiting { // else decided ends it
			t.endLocked(t.err)
		}
	}
	t.mu.Unlock()
	for _, p := range cancelled {
		p.revoke(cause)
	}
}

// endLocked ends a ticket in any state. If nobody has claimed it, its browser may come, and learn why,
// until it ends once more.
func (t *Ticket) endLocked(why error) {
	switch {
	case t.state == waiting:
		t.wait.GiveUp(why) // decided ends it
		return
	case t.visit != nil:
		t.closeLocked()
		return
	case t.state == over:
		t.book.remove(t)
		return
	case t.state == registered:
		close(t.decision)
		if !t.proven.Load() { // its cookie proves the next one, so it has lost nothing
			t.book.remove(t)
		}
	default:
		t.line.Load().Report.Waited(&t.about, why)
	}
	part := 0.0
	if t.state == offered && errors.Is(why, errAway) { // else its browser may come, and be refused
		t.line.Load().Report.Count(string(serializer.ReasonGone))
		if t.turn != nil && t.proven.Load() {
			part = time.Since(t.came).Seconds() / t.allowed.Seconds()
		}
	}
	t.absences().settle(t.absent(), t.allowed, part)
	t.state, t.err, t.seen = over, why, time.Now()
	t.scheduleLocked()
	t.releaseLocked()
}

// forgetLocked ends a ticket that nobody finds any more.
func (t *Ticket) forgetLocked() {
	t.state = over
	t.book.remove(t)
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil // it would keep what the ticket has
	}
}

// releaseLocked gives back what the ticket has, in a goroutine that holds no lock.
func (t *Ticket) releaseLocked() {
	turn := t.turn
	t.turn = nil
	go func() {
		t.opening.forget(t)
		if turn != nil {
			turn.Leave()
		}
		t.engine.Release()
	}()
}

// Request implements [serializer.Requester].
func (t *Ticket) Request() serializer.Request { return t.about.Request() }

// Prefix is the configured prefix of the ticket's queue.
func (t *Ticket) Prefix() string { return t.line.Load().Report.Prefix }

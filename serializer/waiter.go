package serializer

import (
	"context"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// place is a ticket of this process: its entry in the line and the caller who
// waits for it, in one piece of memory. It is the Turn of the engines here.
type place struct {
	entry
	waiter
	engine leaver
}

// leaver is the engine behind a place.
type leaver interface{ leave(*place) }

// waiter is the caller of Enter, as the engine sees it. Everything but ready
// belongs to the engine's lock.
type waiter struct {
	place     *place
	ready     chan struct{} // one message: the turn has come, or refusal says why not
	refusal   error         // set before the message
	position  int           // how many were ahead on arrival
	max       int           // Arrival.MaxWaiting
	entered   time.Duration // from launch
	revoke    func(error)
	requester Requester

	linked  bool // the lock file exists
	givenUp bool // nobody waits for it any more
	left    atomic.Bool
	dir     *directory
}

func newPlace(engine leaver, a Arrival) *place {
	p := &place{engine: engine}
	p.Prefix, p.Client, p.rule = a.Queue, a.Client, a.Rule
	p.entry.waiter = &p.waiter
	p.waiter.place = p
	p.ready = make(chan struct{}, 1)
	p.max, p.revoke, p.requester = a.MaxWaiting, a.Revoke, a.Requester
	return p
}

// Token implements [Turn].
func (p *place) Token() uint64 { return p.Stamp }

// Position implements [Turn].
func (p *place) Position() int { return p.position }

// Leave implements [Turn].
func (p *place) Leave() {
	if !p.left.Swap(true) {
		p.engine.leave(p)
	}
}

// launch is a moment to count from. A duration takes a third of the memory that
// a time takes.
var launch = time.Now()

// grant tells the caller that its turn has come.
func (w *waiter) grant() {
	w.entered = time.Since(launch)
	w.ready <- struct{}{}
}

// stepAside lets the goroutine run at once that was just let in. It is the next
// one of this thread, but the caller has things to do first, and meanwhile
// nobody would be inside.
func stepAside() { runtime.Gosched() }

// refuse tells the caller that its turn will not come.
func (w *waiter) refuse(err error) {
	w.place.out = true
	w.refusal = err
	w.ready <- struct{}{}
}

// timers are stopped ones, for use again. Every arrival that waits needs one,
// and hardly any of them runs out.
var timers = sync.Pool{New: func() any {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return timer
}}

// await returns nil once the turn has come, and else why it has not.
func (w *waiter) await(ctx context.Context, timeout time.Duration) error {
	select {
	case <-w.ready: // at once, as for most
		return w.refusal
	default:
	}
	var expired <-chan time.Time
	if timeout > 0 {
		timer := timers.Get().(*time.Timer)
		timer.Reset(timeout)
		defer func() {
			timer.Stop()
			timers.Put(timer)
		}()
		expired = timer.C
	}
	select {
	case <-w.ready:
		return w.refusal
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-expired:
		return ErrTimeout
	}
}

// refused is the error that the caller gets.
func (p *place) refused(err error) error {
	return &Refused{Reason: ReasonOf(err), Queue: p.Prefix, Position: p.position, Token: p.Stamp, Err: err}
}

// clientText is an address for people: nothing where there is none, which the
// name of a lock file has to write as zeros.
func clientText(client netip.AddrPort) string {
	if !client.IsValid() || client.Addr().IsUnspecified() && client.Port() == 0 {
		return ""
	}
	return client.String()
}

// state describes the entry for people.
func (e *entry) state(now time.Time) TicketState {
	s := TicketState{
		Token:   tokenText(e.Stamp),
		State:   StateWaiting,
		Arrived: e.Time().UTC(),
		Client:  clientText(e.Client),
	}
	s.Since = s.Arrived
	if e.admitted {
		s.State = StateInside
	}
	if e.waiter == nil {
		return s
	}
	s.Requester = e.requester
	if e.entered > 0 {
		// Wall time of the entry, told from now so that it follows a clock
		// that was set since.
		s.Entered = now.Add(e.entered - time.Since(launch)).UTC()
		s.Since = s.Entered
	}
	return s
}

package serializer

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"time"
)

// Enter takes a ticket in the queue a.Queue and waits for its turn. The wait ends early
// when ctx is done; if it is already, no ticket is taken. The error, if any, is a [*Refused],
// or wraps [ErrQueueName]. No ticket is then left behind: on a store of leases, other processes
// learn that moments later.
func (e *Engine) Enter(ctx context.Context, a Arrival) (Turn, error) {
	if ctx.Err() != nil {
		return nil, newTicket(e, &a).refused(context.Cause(ctx))
	}
	turn, wait, err := e.Arrive(a)
	if wait != (Wait{}) {
		turn, err = wait.End(ctx)
	}
	return turn, err
}

// Do enters, calls a function and leaves, also if the function panics. The function's context
// is done when ctx is, and when the turn is revoked; see [Turn.Context]. [TurnOf] finds the turn
// in it. Do returns the function's error, or that of [Engine.Enter]. So a function that ends well
// although its turn was revoked says so by returning the cause of its context.
func (e *Engine) Do(ctx context.Context, a Arrival, work func(context.Context) error) error {
	turn, err := e.Enter(ctx, a)
	if err != nil {
		return err
	}
	defer turn.Leave()
	ctx, cancel := context.WithCancelCause(context.WithValue(ctx, turnKey{}, turn))
	defer cancel(ErrLeft)
	revoked := turn.Context()
	defer context.AfterFunc(revoked, func() { cancel(context.Cause(revoked)) })()
	return work(ctx)
}

type turnKey struct{}

// TurnOf returns the turn in which [Engine.Do] has called a function, by its context: for its
// token, or for [Arrival.Holds]. It is nil in any other context.
func TurnOf(ctx context.Context) Turn {
	turn, _ := ctx.Value(turnKey{}).(Turn)
	return turn
}

// Arrive takes a ticket, as [Engine.Enter] does, and returns at once. If the turn has to be
// waited for, turn and error are nil, and the caller must call [Wait.End], once. Otherwise, the
// wait is the zero value.
func (e *Engine) Arrive(a Arrival) (Turn, Wait, error) {
	t := newTicket(e, &a)
	if err := e.arrive(t, a.Timeout); err != nil {
		return nil, Wait{}, t.refused(err)
	}
	if e.waits(t, a.Timeout) {
		return nil, Wait{t, a.Timeout}, nil
	}
	turn, err := e.outcome(t)
	return turn, Wait{}, err
}

// Join takes a ticket, as [Engine.Enter] does, and returns at once. When the wait has
// ended, done is called once, in its own goroutine, with what Enter would have returned.
// That may be before Join has returned.
func (e *Engine) Join(a Arrival, done func(Turn, error)) Wait {
	if done == nil {
		panic("serializer: Join without a function: nobody would leave the turn")
	}
	t := newTicket(e, &a)
	t.done = done
	if err := e.arrive(t, a.Timeout); err != nil {
		go done(nil, t.refused(err))
		return Wait{}
	}
	e.waits(t, a.Timeout)
	return Wait{ticket: t}
}

// waits prepares the wait of a ticket. It reports false for one that was decided on arrival.
func (e *Engine) waits(t *Ticket, timeout time.Duration) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case t.state >= inside:
		return false
	case t.done == nil:
		t.ready = e.channels.Get().(chan struct{})
	case timeout > 0:
		t.timer = time.AfterFunc(timeout, func() { e.giveUp(t, ErrTimeout) })
	}
	return true
}

// Wait is the wait of an arrival that has joined a queue. The zero value is one that has
// ended.
type Wait struct {
	ticket  *Ticket
	timeout time.Duration // of [Wait.End]; 0 is no limit
}

// End waits for the turn of an arrival by [Engine.Arrive], and returns what Enter would. The zero value
// has nothing to wait for: it panics, and so does a second call.
func (w Wait) End(ctx context.Context) (Turn, error) { return w.EndTicking(ctx, nil, nil) }

// EndTicking is End for a caller that has something to do meanwhile. It calls tick, in the
// goroutine of the caller, for each message of ticks. A turn that comes then waits for it.
func (w Wait) EndTicking(ctx context.Context, ticks <-chan time.Time, tick func()) (Turn, error) {
	if w.ticket == nil || w.ticket.ready == nil {
		panic("serializer: End of a wait that has ended, or that is by Join")
	}
	e, t := w.ticket.engine, w.ticket
	var expired <-chan time.Time
	if w.timeout > 0 {
		timer := e.timers.Get().(*time.Timer)
		timer.Reset(w.timeout)
		defer e.timers.Put(timer)
		defer timer.Stop()
		expired = timer.C
	}
	for {
		select {
		case <-ticks:
			tick()
			continue
		case <-t.ready:
		case <-expired:
			e.giveUp(t, ErrTimeout)
			<-t.ready
		case <-ctx.Done():
			e.giveUp(t, context.Cause(ctx))
			<-t.ready
		}
		break
	}
	e.channels.Put(t.ready) // it has had its only message
	t.ready = nil           // the next one is another caller's: it must not go to a second End
	return e.outcome(t)
}

// GiveUp ends the wait of an arrival by [Engine.Join], like a context that is cancelled with
// that cause. It does not block, and does nothing if the wait has already ended.
func (w Wait) GiveUp(cause error) {
	if w.ticket != nil {
		w.ticket.engine.giveUp(w.ticket, cmp.Or(cause, context.Canceled))
	}
}

// arrive asks for a ticket. The error means that there is none.
func (e *Engine) arrive(t *Ticket, timeout time.Duration) error {
	if err := CheckQueueName(t.Queue); err != nil {
		return err
	}
	if timeout < 0 {
		return ErrTimeout
	}
	if err := e.arrivalOf(t); err != nil || !e.immediate {
		return err
	}
	t.batch[0] = t
	if err := e.store.Append(e.ctx, t.batch[:]); err != nil {
		e.refuseUnjoined(t.batch[:], err)
	}
	return nil
}

// arrivalOf puts a ticket in line to be appended, unless the store is immediate. A queue
// that is full of tickets of this process needs no ticket to find that out.
func (e *Engine) arrivalOf(t *Ticket) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return e.closedError()
	}
	if q := e.queues[t.Queue]; q != nil && t.isFull(q.localWaiting()) {
		t.position = q.length
		return ErrFull
	}
	e.busy.Add(1) // until forgetDeparted
	if e.immediate {
		return nil
	}
	e.arrivals = append(e.arrivals, t)
	if !e.appending {
		e.appending = true
		e.busy.Go(e.appendAll)
	}
	return nil
}

// batchSize bounds how many tickets are appended at once, and so how long the first of
// them waits.
const batchSize = 64

// appendAll appends tickets until no arrival asks for one.
func (e *Engine) appendAll() {
	for {
		// Let callers that are about to arrive do so: a batch is cheaper, and if there
		// are none, this costs nothing.
		runtime.Gosched()
		batch := e.nextBatch(false)
		e.forgetDeparted()
		if len(batch) == 0 {
			return
		}
		if e.appendBatch(batch) {
			continue
		}
		// These wait until some holders have left. If the caller of an arrival is such a holder,
		// it would wait for itself.
		if nested := e.nextBatch(true); len(nested) > 0 {
			e.appendBatch(nested)
		}
		select {
		case <-time.After(postponeTime):
		case <-e.ctx.Done():
		}
	}
}

// postponeTime is how long arrivals wait that the store could not number.
const postponeTime = 2 * time.Millisecond

// appendBatch appends tickets. It returns false if the store cannot at the moment.
func (e *Engine) appendBatch(batch []*Ticket) bool {
	err := e.store.Append(e.ctx, batch)
	if err != nil && !e.postpone(batch, err) {
		e.refuseUnjoined(batch, err)
		return true
	}
	return err == nil
}

// postpone puts the tickets that the store could not number at the moment back at the head of
// the line. It returns false if they are to be refused.
func (e *Engine) postpone(batch []*Ticket, err error) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || !errors.Is(err, ErrNotNow) {
		return false
	}
	for _, t := range batch {
		if t.noWait && t.state == arriving && !t.isNestedLocked() {
			e.refuseLocked(t, ErrNotFree)
		}
	}
	batch = slices.DeleteFunc(batch, func(t *Ticket) bool { return t.state != arriving })
	e.arrivals = slices.Insert(e.arrivals, 0, batch...)
	return true
}

// isNestedLocked reports whether the caller is inside another queue of the engine.
func (t *Ticket) isNestedLocked() bool { return t.holder != nil && t.holder.in != nil }

// nextBatch takes the first arrivals out of the line, perhaps only those of callers that are inside
// another queue. Arrivals that are over go, too.
func (e *Engine) nextBatch(nested bool) []*Ticket {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.batch) // tickets that are over need no memory
	e.batch = e.batch[:0]
	e.arrivals = slices.DeleteFunc(e.arrivals, func(t *Ticket) bool {
		takes := t.state == arriving && len(e.batch) < batchSize && (!nested || t.isNestedLocked())
		if takes {
			e.batch = append(e.batch, t)
		}
		return takes || t.state == over
	})
	e.appending = nested || len(e.batch) > 0
	return e.batch
}

// refuseUnjoined refuses the arrivals of a batch that the store could not append.
func (e *Engine) refuseUnjoined(batch []*Ticket, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed: // which has cancelled Append
		err = e.closedError()
	case ReasonOf(err) == ReasonGone: // the store does not say more
		err = &StorageError{"appending to", e.Path(), err}
	}
	for _, t := range batch {
		if t.state == arriving {
			e.refuseLocked(t, err)
		}
	}
}

// giveUp ends the wait of a caller. If the turn came at the same moment as the timeout, it
// counts. Nobody is there to use it if the caller has gone.
func (e *Engine) giveUp(t *Ticket, cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case t.state == over || t.delivered:
	case t.state < inside:
		e.refuseLocked(t, cause)
	case cause != ErrTimeout:
		t.refusal = cause
		e.takeOutLocked(t)
	}
}

// outcome returns the turn of the caller, or why it has none.
func (e *Engine) outcome(t *Ticket) (Turn, error) {
	if err := e.decide(t); err != nil {
		e.forgetDeparted()
		return nil, t.refused(err)
	}
	return t, nil
}

// decide notes that the caller gets to know its outcome. Since the turn came, the process
// may have been stopped, and the lease may have ended.
func (e *Engine) decide(t *Ticket) error {
	stands := e.stands(t)
	e.mu.Lock()
	defer e.mu.Unlock()
	t.delivered = true
	if t.timer != nil {
		t.timer.Stop()
	}
	if t.refusal == nil && !stands {
		t.refusal = ErrLost
		e.takeOutLocked(t)
	}
	if t.refusal != nil {
		t.departed, e.departed = e.departed, t
	}
	return t.refusal
}

// stands asks the store about a ticket whose turn has come. It may still be numbering any
// other ticket.
func (e *Engine) stands(t *Ticket) bool {
	if e.lease == nil {
		return true
	}
	e.mu.Lock()
	granted := t.state == inside
	e.mu.Unlock()
	return !granted || e.lease.Stands(t)
}

// forgetDeparted removes the tickets that are over from the store.
func (e *Engine) forgetDeparted() {
	e.mu.Lock()
	departed := e.departed
	e.departed = nil
	e.mu.Unlock()
	for t := departed; t != nil; t = t.departed {
		if t.inSlot != nil { // before the next one comes for a slot
			e.forget(t.inSlot)
		}
		e.forget(t)
	}
}

// forget removes a ticket that is over from the store.
func (e *Engine) forget(t *Ticket) {
	if t.joined {
		e.store.Remove(t)
	}
	e.busy.Done()
}

// leave ends a turn.
func (e *Engine) leave(t *Ticket) {
	e.mu.Lock()
	if t.state != inside {
		e.mu.Unlock()
		return
	}
	q := t.in
	next := e.takeOutLocked(t)
	if t.context != nil {
		t.context.cancel(ErrLeft)
	}
	t.departed, e.departed = e.departed, t
	// Nobody waits for the removal if the next holder is local and alone. The goroutine that
	// appends does it after the batch: two threads in a directory would wait for each other.
	putOff := next != nil && next.Rule.Alone() && !q.hasRemote() && e.appending && e.lease == nil
	e.mu.Unlock()
	if next != nil {
		// Let the next holder run at once. Its goroutine is the next one of this thread,
		// and nobody would be inside during the work that is left here.
		runtime.Gosched()
	}
	if !putOff {
		e.forgetDeparted()
	}
}

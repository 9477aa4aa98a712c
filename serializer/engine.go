package serializer

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"
)

// Engine keeps any number of queues in order, those of all processes that share its
// [Store]. All methods may be called from many goroutines at once, even after Close.
//
// # How it works
//
// An arrival asks the store for a ticket. The store numbers it, shows it to the other
// processes, and reports it in order with theirs. So the engine has the queues of all
// processes in memory. When a ticket joins its queue, all smaller ones are there, and none
// can come later. From then on, tickets before it can only disappear. So admission is
// decided in memory, by one rule (admission.go), and each process decides the same.
//
// If the next ticket is local, the turn passes through a channel, and the ticket of the
// leaving holder is removed from the store afterwards: the next one is already there, so
// no other process sees a gap. Unless one waits, that may be after a batch was appended. If
// the next one is remote, the removal is what admits it.
//
// # States
//
// A local ticket is arriving, waiting, inside or over, in this order, and before it is inside perhaps
// seeking a slot. Each change happens under Engine.mu, and the change to inside or over ends the wait
// with one message, if it has begun. The goroutine of the caller then removes a refused ticket from
// the store.
//
// # Locks
//
// Engine.mu guards queues, tickets and waiters. A method that needs it ends in Locked.
// While it is held, nothing is called but [Store.SetInside] and [Store.Inside]: no other
// method of the store, no function of the caller, and no logger.
type Engine struct {
	store     Store
	lease     Lease // nil unless the store is one
	immediate bool
	log       *slog.Logger
	channels  sync.Pool // of empty channels with room for one message
	timers    sync.Pool // of timers that do not run
	ctx       context.Context
	stop      context.CancelFunc
	done      chan struct{}  // closed when the store is
	busy      sync.WaitGroup // local tickets in the store or on their way, and calls of the store

	mu        sync.Mutex
	queues    map[string]*ticketQueue
	empty     *ticketQueue // the one of them that has no tickets, or nil
	pauses    pauses
	arrivals  []*Ticket        // that wait to be appended, in order
	batch     []*Ticket        // being appended
	slots     map[string]*slot // by their queues
	departed  *Ticket          // the last of those that are over, but perhaps still in the store
	appending bool             // a goroutine is appending tickets
	closed    bool
}

// Options adjust an [Engine]. The zero value suits most uses.
type Options struct {
	Log *slog.Logger // nil means no log
}

// New makes an engine that keeps its queues in a store, which belongs to it from now on. One
// engine serves any number of queues; a second one on the same store panics.
func New(store Store, o Options) *Engine {
	e := &Engine{
		store: store, log: cmp.Or(o.Log, slog.New(slog.DiscardHandler)), done: make(chan struct{}),
		queues: make(map[string]*ticketQueue),
		pauses: make(pauses), slots: make(map[string]*slot),
	}
	e.channels.New = func() any { return make(chan struct{}, 1) }
	e.timers.New = func() any { return time.NewTimer(math.MaxInt64) } // as good as never
	e.lease, _ = store.(Lease)
	_, e.immediate = store.(Immediate)
	e.ctx, e.stop = context.WithCancel(context.Background())
	store.Follow(events{e})
	return e
}

// Path says where the engine keeps its queues; see [Store.Path].
func (e *Engine) Path() string { return e.store.Path() }

// Count returns how many tickets of this process are inside a queue, and how many wait.
// It never blocks.
func (e *Engine) Count(queue string) (inside, waiting int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if q := e.queues[queue]; q != nil {
		inside, waiting = q.localInside, q.localWaiting()
	}
	return inside, waiting
}

// Ahead returns how many tickets of all processes a newcomer has ahead, as far as the engine has
// heard. It never blocks.
func (e *Engine) Ahead(queue string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if q := e.queues[queue]; q != nil {
		return q.length
	}
	return 0
}

// mostHolds bounds the work of Holds, which a queue without a limit does for each refusal.
const mostHolds = 256

// Holds returns for how long tickets of this process have been inside a queue, the longest first,
// but not more than 256. It never blocks.
func (e *Engine) Holds(queue string) (ages []time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	q, now := e.queues[queue], time.Since(launch)
	if q == nil {
		return nil
	}
	for t := range q.all() {
		if !t.admitted || len(ages) == mostHolds {
			break
		}
		if t.Local() && t.state == inside {
			ages = append(ages, now-t.entered)
		}
	}
	slices.SortFunc(ages, func(a, b time.Duration) int { return cmp.Compare(b, a) })
	return ages
}

// Evict takes one ticket out of a queue. A waiter is refused with [ErrEvicted]. A holder
// is notified by [Arrival.Revoke], and keeps its turn until it leaves. The owner of a
// ticket of another process is asked to do the same. The error is [ErrNoTicket] if the
// queue has no such ticket. If ctx is done before, the owner still obeys when it can. The token is
// [Turn.Token], or [TicketState.Token] after [strconv.ParseUint].
func (e *Engine) Evict(ctx context.Context, queue string, token uint64) error {
	err := e.using(ctx, func(ctx context.Context) error {
		if err := e.store.Sync(ctx); err != nil {
			return err
		}
		t, err := e.evictLocal(queue, token)
		if err != nil || t == nil {
			return err
		}
		return e.store.Evict(ctx, t)
	})
	if err != nil {
		return fmt.Errorf("evicting ticket %d from queue %q: %w", token, queue, err)
	}
	return nil
}

// evictLocal evicts a ticket if it is local. Otherwise, it returns the ticket.
func (e *Engine) evictLocal(queue string, token uint64) (remote *Ticket, err error) {
	e.mu.Lock()
	t := e.queues[queue].find(token)
	e.mu.Unlock()
	switch {
	case t == nil:
		return nil, ErrNoTicket
	case !t.Local():
		return t, nil
	}
	e.takeBack(t, ErrEvicted)
	return nil, nil
}

// using calls the store, which stays open meanwhile. It returns when ctx is done, even if
// the store does not.
func (e *Engine) using(ctx context.Context, call func(context.Context) error) error {
	result := make(chan error, 1)
	e.mu.Lock()
	closed := e.closed
	if !closed {
		e.busy.Go(func() { result <- call(ctx) })
	}
	e.mu.Unlock()
	if closed {
		return e.closedError()
	}
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// closeTime is how long Close waits for holders that it has revoked, and for the last
// tickets to be removed.
const closeTime = time.Second

// Close refuses further arrivals and all waiters. A holder is notified by
// [Arrival.Revoke] ([ErrClosed]), and stays inside until it leaves. When the last one has
// left, the store is closed. Close waits for that, but at most a second: leave before the
// program ends. It returns nil: an error of the store is logged. Calls after the first do nothing.
func (e *Engine) Close() error {
	if e.close() {
		select {
		case <-e.done:
		case <-time.After(closeTime):
		}
	}
	return nil
}

// close reports whether this is the first call.
func (e *Engine) close() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.closed = true
	e.stop()
	for _, t := range e.arrivals {
		e.refuseLocked(t, e.closedError())
	}
	e.endLocked(e.closedError())
	go e.closeStore()
	return true
}

// endLocked refuses the waiters of all queues, and revokes the turns of the holders.
func (e *Engine) endLocked(cause error) (refused, revoked int) {
	for _, q := range e.queues {
		q.setPaused(true) // nobody enters because others are refused
		for t := range q.all() {
			switch {
			case !t.Local():
			case t.state == inside:
				t.revokeLocked(cause)
				revoked++
			default:
				e.refuseLocked(t, cause)
				refused++
			}
		}
	}
	return refused, revoked
}

func (e *Engine) closedError() error { return fmt.Errorf("using %s: %w", e.Path(), ErrClosed) }

// closeStore closes the store of a closed engine once nothing needs it.
func (e *Engine) closeStore() {
	defer close(e.done)
	e.busy.Wait()
	if err := e.store.Close(); err != nil {
		e.log.Error("closing the queues' storage failed", "path", e.Path(), "error", err)
	}
}

package serializer

import (
	"context"
	"time"
)

// Store keeps the tickets of all processes that share its queues. An [Engine] works on
// one. A store numbers tickets and shows them to other processes. It knows no caller
// and no rule of admission: those are the engine's.
//
// A store may also be [Immediate], or a [Lease]. Package storetest tests whether a store
// keeps the promises below; storetest/README.md leads through a complete one.
//
// # Order
//
// Every ticket gets a number, which is unique in its queue. A store reports all tickets
// to [Events], those of its own process, too. It must report a ticket of this process
// after every ticket of the queue with a smaller number, and before every one with a
// greater number. On that, the order of admission rests.
type Store interface {
	// Path says where the store keeps its queues, for people and for [QueueState.Path]:
	// a directory, or a text such as etcd:orderly. It returns at once, and its result
	// never changes. Stores that share queues have the same path.
	Path() string

	// Follow begins to report to events. It is called once, before all other methods. It
	// need not wait until the store can be reached. The pauses of a queue are reported before
	// its first ticket.
	Follow(events Events)

	// Append numbers the tickets, shows them to all processes that share the queues, and
	// then reports them by [Events.Joined], in the given order. It returns when all are
	// reported, or none of the rest can be: these are refused with the error, in a [StorageError]
	// unless [ReasonOf] knows it. They must have left no trace. All tickets are of this process, perhaps of several queues, and at most
	// 64 come at once. The store sets Number, Arrived and Owner, and may set Key and Ref.
	//
	// One call is in progress at a time, unless the store is [Immediate]. It may block
	// until ctx is done, which is when the engine closes. It must not wait for tickets to
	// be removed: the next call may be for their callers. Instead, it returns an error that
	// wraps [ErrNotNow]. The engine then keeps those that were not reported, appends those
	// whose [Ticket.Holder] is inside in a call of their own, and tries all again soon.
	Append(ctx context.Context, tickets []*Ticket) error

	// Remove takes a joined ticket of this process out again, once. Nobody waits for the
	// result: the store tries again until it succeeds or loses its claim on the ticket.
	// It may return before. Another ticket of this process may be inside by now.
	Remove(t *Ticket)

	// SetInside notes that the caller of a ticket of this process is inside. Other
	// processes can conclude that from the order, except in a paused queue; paused says
	// whether the queue is. When a queue is paused, it is called again for each holder. It
	// must not block or call the engine, which holds its lock.
	SetInside(t *Ticket, paused bool)

	// Inside reports whether a ticket of another process is inside, as far as its owner
	// has said. The engine asks only in a paused queue. It must not block or call the
	// engine, which holds its lock.
	Inside(t *Ticket) bool

	// Sync reports what has happened before the call, so that a list is up to date. A
	// store that reports by itself within moments may do nothing.
	Sync(ctx context.Context) error

	// Evict asks the owner of a ticket of another process to take it out, by
	// [Events.Evict]. It returns when the owner has obeyed or, where the store cannot
	// tell, when the request is on its way. If ctx is done before, the request stays: the
	// owner may be stopped. A ticket without an owner is removed at once.
	// The error is [ErrNoTicket] if there is no such ticket.
	Evict(ctx context.Context, t *Ticket) error

	// Pause pauses a queue in all processes until a moment of the wall clock; a later
	// pause of the same name replaces it. The end has whole microseconds. [Forever], which
	// does not fit into nanoseconds since 1970, means until Resume. A name
	// that ends in * stands for all queues whose names begin so; the store need not know
	// that. Pause returns when the pause was reported by [Events.Paused]. The engine of each
	// process ends it, so the store need not.
	Pause(ctx context.Context, name string, until time.Time) error

	// Resume ends the pause of a name, if there is one, and returns when that was
	// reported.
	Resume(ctx context.Context, name string) error

	// Close frees what the store holds. It is called once, when no ticket of this process
	// is left and no other call is in progress. Nothing is reported afterwards.
	Close() error
}

// Events is what a store reports, to the engine that follows it. Calls must come one
// after another where their order matters. No call blocks for long, but the engine takes
// its lock, so the store must hold no lock that [Store.SetInside] or [Store.Inside] takes.
type Events interface {
	// Joined reports a ticket of this process that other processes can see now. If it
	// returns false, the engine does not want the ticket: its caller has given up, or the
	// queue is full. The store then takes it out by itself.
	Joined(t *Ticket) (wanted bool)

	// Appeared reports a new ticket of another process, with Queue, Number, Rule, Client,
	// Arrived and Owner as far as they are known. Until Vanished, it belongs to the
	// engine.
	Appeared(t *Ticket)

	// Vanished reports that a ticket of another process is out: removed by its owner, or
	// the owner has died. Tickets that are not in a queue are ignored.
	Vanished(t *Ticket)

	// Removed reports that somebody else has taken out a joined ticket of this process. A
	// waiter is refused with [ErrEvicted]. A holder's turn is revoked with [ErrLost]. The
	// store may still get a Remove for the ticket, which does nothing.
	Removed(t *Ticket)

	// Evict reports that another process asks for the eviction of a ticket of this
	// process. It returns false if there is no such ticket.
	Evict(queue string, number uint64) bool

	// Paused reports the end of a queue's pause, or of that of all queues whose names
	// begin with what precedes a final *. A time that has passed, such as the zero time, means that
	// it is not paused.
	Paused(name string, until time.Time)

	// Lost reports that the store has lost all tickets of this process, for good. The engine
	// forgets those of other processes, too, so the store must report them again. Waiters are refused
	// with the cause, and the turns of holders are revoked with it. A holder that has not
	// left yet stays ahead of all tickets that follow in this process. The cause wraps
	// [ErrLost].
	Lost(cause error)
}

// Immediate is a [Store] whose Append returns at once. The engine calls it in the
// goroutine of each arrival, for one ticket, and several calls may come at once.
// Otherwise, one goroutine appends the tickets of all that have arrived in the meantime.
type Immediate interface {
	Store

	// Immediate does nothing.
	Immediate()
}

// Lease is a [Store] whose claim on its tickets can run out while nothing is reported,
// because the process was stopped, or the machine suspended.
type Lease interface {
	Store

	// Stands reports whether the claim on a ticket that has joined may still be relied on.
	// The engine asks before it lets the caller in, from many goroutines at once, so it
	// must return quickly. For a ticket that was lost, the result is false.
	Stands(t *Ticket) bool
}

package serializer

import (
	"context"
	"time"
)

// Arrival describes a caller that asks for its turn.
type Arrival struct {
	// Queue names the queue. [CheckQueueName] says which names there are, and [QueueName]
	// turns any text into one. For lock files, it is the prefix of their names.
	Queue string

	// Client is the IP address and port this arrival came from, as in [net/http.Request],
	// for people who read the queue. Any other text means none.
	Client string

	// Rule determines which other arrivals may be inside together with this one.
	Rule Rule

	// MaxWaiting is how many others may already wait. If that many do, the arrival is
	// refused with [ErrFull]. Zero or less means no limit.
	MaxWaiting int

	// DropOldest lets the arrival queue even if MaxWaiting others already wait. It is
	// refused with [ErrSuperseded] once that many wait behind it. So the oldest waiter
	// is refused. The setting concerns only this arrival: an arrival without it is never
	// superseded, so all arrivals of a queue should agree. Without MaxWaiting, it does
	// nothing.
	DropOldest bool

	// Timeout is the longest wait. Zero means no limit. A negative one has passed already:
	// the arrival is refused with [ErrTimeout].
	Timeout time.Duration

	// NoWait refuses the arrival with [ErrNotFree] unless it enters at once: also in a pause. How long the
	// store takes to answer does not count, so a queue that is free always admits it. On a store of leases,
	// a queue is free moments after a caller of another process has left it.
	NoWait bool

	// Slots names what each caller inside has for itself, such as the address of a GPU. The names
	// are distinct, and not empty. The turn comes with one that nobody else has, in all processes;
	// see [Turn.Slot]. Of the free ones, it is the one that has been free for longest, as far as
	// this process knows. Rule.Limit should be how many there are. The function is called when a
	// turn comes, so what it no longer returns is given to nobody. While it returns none, callers wait.
	// Nil means no slots.
	Slots func() []string

	// Holds are the turns that the caller has already, in other queues: one that arrives again in
	// its own waits for itself. While it waits, it leaves none of them. A store may issue no tickets
	// until some holders have left. It still issues those that these holders ask for; see [ErrNotNow].
	Holds []Turn

	// Requester describes what the arrival is for, to people who read the queue, for example
	// Label("nightly import"). Nil means no description.
	Requester Requester

	// Revoke is called at most once, from another goroutine, when the turn is taken back
	// while the caller is inside. That is by eviction ([ErrEvicted]), because the store
	// can no longer guarantee the turn ([ErrLost]), or because the engine closes
	// ([ErrClosed]). The caller should stop its work, and must still call [Turn.Leave].
	// Revoke may be called before Enter has returned. Nil means no notification.
	// [Turn.Context] says the same.
	Revoke func(cause error)
}

// Turn is the right to be inside.
type Turn interface {
	// Token is the number of the ticket. It grows with every entry of a queue. So an
	// upstream can use it as a fencing token: it remembers the greatest one, and rejects
	// a writer with a smaller one.
	Token() uint64

	// Position is how many tickets were ahead on arrival.
	Position() int

	// Context is done when the turn has been revoked or left. [context.Cause] says why: it
	// wraps what [Arrival.Revoke] gets, or is [ErrLeft]. Work that must not go on without the
	// turn uses this context, and checks it at its end. A process that was stopped may learn of a lost
	// lease a moment later, so only the token is exact. A turn that is revoked lasts until
	// Leave, except with [ErrLost]: then another caller may be inside already. The context does not
	// descend from that of [Engine.Enter], which is that of the wait; the one of [Engine.Do] does.
	Context() context.Context

	// Slot is the one of [Arrival.Slots] that the caller has, or empty without slots.
	Slot() string

	// SlotFailed says that the work at the slot has failed. So the slot rests until each other one has
	// been given to a caller since, as far as this process knows, but for a minute at most. Otherwise
	// whatever fails at once would soon be free again, for all who wait.
	SlotFailed()

	// Leave ends the turn. Calls after the first do nothing.
	Leave()

	// SetCaller gives the turn another caller. From now on, its requester stands in lists, and its
	// revoke is what [Arrival.Revoke] was. If the turn is revoked already, that is called at once.
	SetCaller(requester Requester, revoke func(cause error))
}

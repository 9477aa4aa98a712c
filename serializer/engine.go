package serializer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Engine keeps the order of any number of queues. All methods may be called
// from many goroutines at once, also after Close.
//
// This is all that an engine must have; package enginetest tells whether it
// keeps the promises below. An engine may be a [Joiner], a [Counter] and a [Pauser], too.
type Engine interface {
	// Path names the place where the engine keeps its queues, for people and for
	// [QueueState.Path]: a directory, or a text such as etcd:orderly. It returns
	// at once, and always the same. Engines that share queues have the same path.
	// Empty means that the place has no name; then the Caddy plugin shows the key
	// of the engine's module.
	Path() string

	// Enter takes a ticket in the queue that a names and waits for its turn.
	// The error, if any, is a [*Refused]; then no ticket is left behind. The
	// wait ends early when ctx is done.
	Enter(ctx context.Context, a Arrival) (Turn, error)

	// Queues lists every queue that has tickets, in the order of prefixes. A
	// ticket of this process comes with the [Arrival.Requester] it was taken for.
	// An engine without any arrival yet may know of no queue.
	Queues(ctx context.Context) ([]QueueState, error)

	// Evict takes one ticket out of a queue: a waiting one is refused with
	// [ErrEvicted], one that is inside hears of it by [Arrival.Revoke] and
	// keeps its place until it leaves. The error is [ErrNoTicket] where the
	// queue has no such ticket.
	Evict(ctx context.Context, queue string, token uint64) error

	// Close refuses further arrivals and all waiters. A holder hears of it by
	// [Arrival.Revoke] ([ErrClosed]) and stays until it leaves; the
	// engine frees what it holds with the last of them. Calls after the first do
	// no harm.
	Close() error
}

// Arrival is what a caller says of itself when it asks for its turn.
type Arrival struct {
	// Queue names the queue. For [File] it is the prefix of the lock files;
	// see [QueueName] for turning any text into one.
	Queue string

	// Client is the address this arrival came from, for people who read the
	// queue. The zero value stands for none.
	Client netip.AddrPort

	// Rule says with whom this arrival may be inside.
	Rule Rule

	// Group names the queues that [Pauser.Pause] pauses together with this one,
	// such as the text that Queue was made from by filling in placeholders. Empty
	// means none.
	Group string

	// MaxWaiting refuses the arrival with [ErrFull] where that many others
	// already wait. Zero means no limit.
	MaxWaiting int

	// DropOldest lets the arrival into the queue all the same where MaxWaiting others
	// already wait, and refuses it with [ErrSuperseded] once that many wait behind it.
	// So the one that has waited longest goes. Each arrival only says so of itself:
	// one without it is never superseded, so all arrivals of a queue should agree. It
	// does nothing without MaxWaiting.
	DropOldest bool

	// Timeout is the longest wait. Zero means to wait for ever.
	Timeout time.Duration

	// Requester says what the arrival is for, for people who read the queue.
	// Nil says nothing.
	Requester Requester

	// Joined is called once the place in the queue is certain: an arrival whose
	// Enter is called after that comes behind this one. It must not block or call
	// the engine, and it is not called for an arrival that is refused before. Nil
	// means that the caller does not want to know.
	Joined func()

	// Revoke is called at most once, from another goroutine, when the turn is
	// taken back while the caller is inside: by eviction ([ErrEvicted]),
	// because the engine can no longer vouch for it ([ErrLost]) or because it
	// closes ([ErrClosed]). The caller should stop its work and must still call
	// [Turn.Leave]. It may be called before Enter has returned. It must not
	// block. Nil means that the caller does not want to know.
	Revoke func(cause error)
}

// Turn is the right to be inside.
type Turn interface {
	// Token is the number of the ticket. It grows with every entry of a
	// queue, so an upstream that remembers the greatest one it has seen can
	// reject a late writer (a fencing token).
	Token() uint64

	// Position is how many tickets were ahead on arrival.
	Position() int

	// Leave ends the turn. Calls after the first do nothing.
	Leave()
}

// Why an arrival is refused. [Refused.Err] wraps one of these, or the cause of
// the context that ended the wait.
var (
	ErrTimeout    = errors.New("waited too long in the queue")
	ErrFull       = errors.New("too many are waiting in the queue")
	ErrSuperseded = errors.New("superseded by a later arrival in the queue")
	ErrEvicted    = errors.New("evicted from the queue")
	ErrLost       = errors.New("the engine lost its claim on the queue")
	ErrStorage    = errors.New("the queue's storage failed")
	ErrClosed     = errors.New("the queue's engine is closed")
	ErrNoTicket   = errors.New("no such ticket")
)

// Reason is one word for why an arrival was refused.
type Reason string

// The reasons there are.
const (
	ReasonTimeout    Reason = "timeout"
	ReasonFull       Reason = "queue_full"
	ReasonSuperseded Reason = "superseded"
	ReasonEvicted    Reason = "evicted"
	ReasonLost       Reason = "lost"
	ReasonStorage    Reason = "storage"
	ReasonGone       Reason = "gone" // the caller's context was done
)

// Refused is the error of [Engine.Enter].
type Refused struct {
	Reason   Reason
	Queue    string
	Position int    // how many were ahead on arrival, as far as it was known
	Token    uint64 // of the ticket given up; 0 if none had been given out
	Err      error  // the cause in full
}

func (r *Refused) Error() string {
	return fmt.Sprintf("refused by queue %q: %v", r.Queue, r.Err)
}

func (r *Refused) Unwrap() error { return r.Err }

// StorageError is the cause of refusals for [ReasonStorage]. errors.Is with
// [ErrStorage] finds it.
type StorageError struct {
	Op   string // what was being done
	Path string // to what
	Err  error
}

func (e *StorageError) Error() string {
	return fmt.Sprintf("%s %s: %v", e.Op, e.Path, e.Err)
}

func (e *StorageError) Unwrap() []error { return []error{ErrStorage, e.Err} }

// ReasonOf tells the reason that belongs to the cause of a refusal. A cause that
// this package does not know is that of a context: [ReasonGone].
func ReasonOf(err error) Reason {
	switch {
	case errors.Is(err, ErrTimeout):
		return ReasonTimeout
	case errors.Is(err, ErrFull):
		return ReasonFull
	case errors.Is(err, ErrSuperseded):
		return ReasonSuperseded
	case errors.Is(err, ErrEvicted):
		return ReasonEvicted
	case errors.Is(err, ErrLost):
		return ReasonLost
	case errors.Is(err, ErrStorage), errors.Is(err, ErrClosed):
		return ReasonStorage
	default:
		return ReasonGone
	}
}

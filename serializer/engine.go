package serializer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Engine keeps any number of queues in order. All methods may be called from many
// goroutines at once, even after Close.
//
// An engine needs only these methods; package enginetest tests whether it keeps the
// promises below. It may also be a [Joiner], a [Counter] and a [Pauser].
type Engine interface {
	// Path says where the engine keeps its queues, for people and for [QueueState.Path]:
	// a directory, or a text such as etcd:orderly. It returns at once, and its result
	// never changes. Engines that share queues have the same path. If it is empty, the
	// Caddy plugin shows the key of the engine's module.
	Path() string

	// Enter takes a ticket in the queue a.Queue and waits for its turn. The error, if
	// any, is a [*Refused]; no ticket is then left behind. The wait ends early when ctx
	// is done.
	Enter(ctx context.Context, a Arrival) (Turn, error)

	// Queues lists every queue that has tickets, ordered by prefix. A ticket of this
	// process comes with the [Arrival.Requester] it was taken for. An engine may know of
	// no queue before its first arrival.
	Queues(ctx context.Context) ([]QueueState, error)

	// Evict takes one ticket out of a queue. A waiter is refused with [ErrEvicted]. A
	// holder is notified by [Arrival.Revoke], and keeps its turn until it leaves. The
	// error is [ErrNoTicket] if the queue has no such ticket.
	Evict(ctx context.Context, queue string, token uint64) error

	// Close refuses further arrivals and all waiters. A holder is notified by
	// [Arrival.Revoke] ([ErrClosed]), and stays inside until it leaves. When the last
	// one has left, the engine frees its resources. Calls after the first do nothing.
	Close() error
}

// Arrival describes a caller that asks for its turn.
type Arrival struct {
	// Queue names the queue. For [File], it is the prefix of the lock files; [QueueName]
	// turns any text into one.
	Queue string

	// Client is the address this arrival came from, for people who read the queue. The
	// zero value means none.
	Client netip.AddrPort

	// Rule determines which other arrivals may be inside together with this one.
	Rule Rule

	// Group names the queues that [Pauser.Pause] can pause together with this one. An
	// example is the configured text from which Queue was made by filling in
	// placeholders. Empty means none.
	Group string

	// MaxWaiting is how many others may already wait. If that many do, the arrival is
	// refused with [ErrFull]. Zero means no limit.
	MaxWaiting int

	// DropOldest lets the arrival queue even if MaxWaiting others already wait. It is
	// refused with [ErrSuperseded] once that many wait behind it. So the oldest waiter
	// is refused. The setting concerns only this arrival: an arrival without it is never
	// superseded, so all arrivals of a queue should agree. Without MaxWaiting, it does
	// nothing.
	DropOldest bool

	// Timeout is the longest wait. Zero means no limit.
	Timeout time.Duration

	// Requester describes what the arrival is for, to people who read the queue. Nil
	// means no description.
	Requester Requester

	// Joined is called once the position in the queue is fixed: an arrival whose Enter
	// is called after that queues behind this one. It must not block or call the engine.
	// It is not called if the arrival was refused before. Nil means no notification.
	Joined func()

	// Revoke is called at most once, from another goroutine, when the turn is taken back
	// while the caller is inside. That is by eviction ([ErrEvicted]), because the engine
	// can no longer guarantee the turn ([ErrLost]), or because the engine closes
	// ([ErrClosed]). The caller should stop its work, and must still call [Turn.Leave].
	// Revoke may be called before Enter has returned. It must not block. Nil means no
	// notification.
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

	// Leave ends the turn. Calls after the first do nothing.
	Leave()
}

// The causes of a refusal. [Refused.Err] wraps one of these, or the cause of the
// context that ended the wait. ErrNoTicket is an error of evictions only.
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

// Reason is the reason of a refusal, in one word.
type Reason string

// The reasons of a refusal. A new one needs a line in causes.
const (
	ReasonTimeout    Reason = "timeout"
	ReasonFull       Reason = "queue_full"
	ReasonSuperseded Reason = "superseded"
	ReasonEvicted    Reason = "evicted"
	ReasonLost       Reason = "lost"
	ReasonStorage    Reason = "storage"
	ReasonGone       Reason = "gone" // the caller's context was done
)

// causes are all reasons of refusal, each with the errors that mean it.
var causes = []struct {
	reason Reason
	errs   []error
}{
	{ReasonTimeout, []error{ErrTimeout}},
	{ReasonFull, []error{ErrFull}},
	{ReasonSuperseded, []error{ErrSuperseded}},
	{ReasonEvicted, []error{ErrEvicted}},
	{ReasonLost, []error{ErrLost}},
	{ReasonStorage, []error{ErrStorage, ErrClosed}},
	{ReasonGone, nil}, // whatever ended the context
}

// Reasons returns all reasons of a refusal.
func Reasons() []Reason {
	reasons := make([]Reason, 0, len(causes))
	for _, c := range causes {
		reasons = append(reasons, c.reason)
	}
	return reasons
}

// Refused is the error of [Engine.Enter].
type Refused struct {
	Reason   Reason // one of [Reasons]; the Caddy plugin takes any other for ReasonStorage
	Queue    string
	Position int    // how many were ahead on arrival, as far as known
	Token    uint64 // of the ticket given up; 0 if none had been issued
	Err      error  // the cause in full
}

func (r *Refused) Error() string {
	return fmt.Sprintf("refused by queue %q: %v", r.Queue, r.Err)
}

func (r *Refused) Unwrap() error { return r.Err }

// StorageError is a cause of refusals with [ReasonStorage]. It matches [ErrStorage]
// with errors.Is.
type StorageError struct {
	Op   string // what was being done
	Path string // to what
	Err  error
}

func (e *StorageError) Error() string {
	return fmt.Sprintf("%s %s: %v", e.Op, e.Path, e.Err)
}

func (e *StorageError) Unwrap() []error { return []error{ErrStorage, e.Err} }

// ReasonOf returns the reason for the cause of a refusal. For a cause that this package
// does not know, which must be that of a context, it is [ReasonGone].
func ReasonOf(err error) Reason {
	for _, c := range causes {
		if slices.ContainsFunc(c.errs, func(cause error) bool { return errors.Is(err, cause) }) {
			return c.reason
		}
	}
	return ReasonGone
}

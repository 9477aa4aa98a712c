package serializer

import (
	"errors"
	"fmt"
)

// The causes of a refusal. [Refused.Err] wraps one of these, or the cause of the
// context that ended the wait. ErrQueueName is no refusal: it is the error of a name that no
// queue can have. ErrLeft is the cause of [Turn.Context] after a turn. ErrNoTicket is
// the error of an eviction, and ErrNotNow one of [Store.Append].
var (
	ErrTimeout    = errors.New("waited too long in the queue")
	ErrFull       = errors.New("too many are waiting in the queue")
	ErrSuperseded = errors.New("superseded by a later arrival in the queue")
	ErrEvicted    = errors.New("evicted from the queue")
	ErrLost       = errors.New("the engine lost its claim on the queue")
	ErrStorage    = errors.New("the queue's storage failed")
	ErrClosed     = errors.New("closed by its program")
	ErrQueueName  = errors.New("no queue can have this name")
	ErrLeft       = errors.New("the turn has been left")
	ErrNoTicket   = errors.New("no such ticket")
	ErrNotNow     = errors.New("no tickets are issued at the moment")
)

// ErrNotFree refuses an arrival with [Arrival.NoWait]. It wraps ErrTimeout.
var ErrNotFree error = notFree{}

type notFree struct{}

func (notFree) Error() string { return "the queue is not free" }
func (notFree) Unwrap() error { return ErrTimeout }

// Reason is the reason of a refusal, in one word.
type Reason string

// The reasons of a refusal. A new one needs a line in causes. What refuses by itself, in front of
// an engine, may have others.
const (
	ReasonTimeout    Reason = "timeout"
	ReasonFull       Reason = "queue_full"
	ReasonSuperseded Reason = "superseded"
	ReasonEvicted    Reason = "evicted"
	ReasonLost       Reason = "lost"
	ReasonStorage    Reason = "storage"
	ReasonClosed     Reason = "closed" // by its program
	ReasonGone       Reason = "gone"   // the caller's context was done
)

// causes are all reasons of refusal, each with the error that means it.
var causes = []struct {
	reason Reason
	err    error
}{
	{ReasonTimeout, ErrTimeout},
	{ReasonFull, ErrFull},
	{ReasonSuperseded, ErrSuperseded},
	{ReasonEvicted, ErrEvicted},
	{ReasonClosed, ErrClosed},
	{ReasonStorage, ErrStorage}, // before ErrLost: a ticket that was never taken cannot be lost
	{ReasonLost, ErrLost},
	{ReasonGone, nil}, // whatever ended the context
}

// IsFailure reports whether the reason is that the queue does not work.
func (r Reason) IsFailure() bool { return r == ReasonStorage || r == ReasonLost }

// Reasons returns all reasons of a refusal.
func Reasons() []Reason {
	reasons := make([]Reason, 0, len(causes))
	for _, c := range causes {
		reasons = append(reasons, c.reason)
	}
	return reasons
}

// ReasonOf returns the reason for the cause of a refusal. For a cause that this package
// does not know, which must be that of a context, it is [ReasonGone].
func ReasonOf(err error) Reason {
	for _, c := range causes {
		if errors.Is(err, c.err) {
			return c.reason
		}
	}
	return ReasonGone
}

// Refused is the error of [Engine.Enter].
type Refused struct {
	Reason   Reason // one of [Reasons]
	Queue    string
	Position int    // how many were ahead on arrival, as far as known
	Token    uint64 // of the ticket given up; 0 if there was none
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

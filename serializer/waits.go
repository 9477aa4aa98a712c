package serializer

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// outcome is how the wait of a caller of Enter ended. The goroutine that sets it sends
// the message.
type outcome struct{ atomic.Uint32 }

const (
	pending uint32 = iota
	decided        // by the engine: with the turn or with a refusal
	expired        // by the timeout
)

// end sets the outcome, unless it is already set. It reports whether it did.
func (o *outcome) end(by uint32) bool { return o.CompareAndSwap(pending, by) }

// waits are the waits of all callers of an engine. The zero value is ready for use.
type waits struct {
	timeouts timeouts
	channels sync.Pool // of empty channels with room for one message
}

// channel returns an empty channel with room for one message.
func (s *waits) channel() chan struct{} {
	if c, ok := s.channels.Get().(chan struct{}); ok {
		return c
	}
	return make(chan struct{}, 1)
}

// await returns nil once the caller's turn has come, and otherwise why it has not.
func (s *waits) await(ctx context.Context, w *waiter, timeout time.Duration) error {
	if w.ready == nil {
		return w.refusal // it was decided on arrival
	}
	if timeout > 0 && w.outcome.Load() == pending {
		s.timeouts.add(w, timeout)
		defer s.timeouts.remove(w)
	}
	over := ctx.Done()
	if over == nil { // cheaper than a select
		<-w.ready
		return s.ended(w)
	}
	select {
	case <-w.ready:
		return s.ended(w)
	case <-over:
		return context.Cause(ctx)
	}
}

// ended returns the result that the message announced. A channel gets only one message,
// so it can be reused.
func (s *waits) ended(w *waiter) error {
	s.channels.Put(w.ready)
	if w.outcome.Load() == expired {
		return ErrTimeout
	}
	return w.refusal
}

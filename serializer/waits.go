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
	limited := timeout > 0 && w.outcome.Load() == pending
	if limited {
		s.timeouts.add(w, timeout)
	}
	over := w.sleep(ctx.Done())
	if limited {
		s.timeouts.remove(w)
	}
	if over {
		return context.Cause(ctx)
	}
	s.channels.Put(w.ready) // it gets only one message, so it can be reused
	if w.outcome.Load() == expired {
		return ErrTimeout
	}
	return w.refusal
}

// sleep returns when the message has come, or when the caller's context is over.
func (w *waiter) sleep(done <-chan struct{}) (over bool) {
	if done == nil { // cheaper than a select
		<-w.ready
		return false
	}
	select {
	case <-w.ready:
		return false
	case <-done:
		return true
	}
}

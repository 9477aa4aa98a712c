package serializer

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// outcome is what has ended the wait of a caller of Enter. Whoever sets it sends the
// message.
type outcome struct{ atomic.Uint32 }

const (
	pending uint32 = iota
	decided        // by the engine: with the turn, or with a refusal
	expired        // its timeout has run out
)

// end sets the outcome, unless it is known already.
func (o *outcome) end(by uint32) bool { return o.CompareAndSwap(pending, by) }

// waits are those of all callers in an engine. The zero value is ready for use.
type waits struct {
	timeouts timeouts
	channels sync.Pool // of channels for one message, without one
}

// channel returns a channel for one message.
func (s *waits) channel() chan struct{} {
	if c, ok := s.channels.Get().(chan struct{}); ok {
		return c
	}
	return make(chan struct{}, 1)
}

// await returns nil once the turn of a caller has come, and else why it has not.
func (s *waits) await(ctx context.Context, w *waiter, timeout time.Duration) error {
	if w.ready == nil {
		return w.refusal // it was decided on arrival
	}
	if timeout > 0 && w.outcome.Load() == pending {
		s.timeouts.add(w, timeout)
		defer s.timeouts.remove(w)
	}
	over := ctx.Done()
	if over == nil { // a select costs more
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

// ended returns what the message said. There is never another one, so the channel can be
// used again.
func (s *waits) ended(w *waiter) error {
	s.channels.Put(w.ready)
	if w.outcome.Load() == expired {
		return ErrTimeout
	}
	return w.refusal
}

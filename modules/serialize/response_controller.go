package serialize

import (
	"context"
	"net/http"
	"time"
)

// SetWriteDeadline is what [http.ResponseController] looks for. It limits what is
// written from now on, and what is being written.
func (w *turnWriter) SetWriteDeadline(deadline time.Time) error {
	if w.isRevoked() {
		return context.Cause(w.turn)
	}
	return w.buffer.setDeadline(deadline)
}

// EnableFullDuplex is what [http.ResponseController] looks for. It has no effect
// once the response has begun, as without a queue.
func (w *turnWriter) EnableFullDuplex() error {
	if w.begun && w.isBuffered() {
		return nil
	}
	return http.NewResponseController(w.ResponseWriter).EnableFullDuplex()
}

// setDeadline sets the write deadline of the client. Caddy's writers are not made
// for two goroutines: while the sender writes, it sets the deadline there itself,
// before it writes on.
func (b *responseBuffer) setDeadline(deadline time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.sending {
		return http.NewResponseController(b.to).SetWriteDeadline(deadline)
	}
	d := &deadline
	b.deadline = d
	// The sender may just be about to set one for what it writes.
	time.AfterFunc(interruptInterval, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.sending && b.deadline == d {
			_ = b.interruptLocked(deadline)
		}
	})
	return b.interruptLocked(deadline)
}

// interruptLocked sets the deadline of what is being written.
func (b *responseBuffer) interruptLocked(deadline time.Time) error {
	return http.NewResponseController(innermost(b.to)).SetWriteDeadline(deadline)
}

// takeDeadlineLocked sets the deadline that was set meanwhile.
func (b *responseBuffer) takeDeadlineLocked() {
	if b.deadline == nil {
		return
	}
	_ = http.NewResponseController(b.to).SetWriteDeadline(*b.deadline)
	b.deadline = nil
}

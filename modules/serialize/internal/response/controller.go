package response

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"time"
)

// Flush implements [http.Flusher].
func (w *Writer) Flush() { _ = w.FlushError() }

// FlushError is what [http.ResponseController] looks for.
func (w *Writer) FlushError() error {
	if !w.mayWrite() {
		return context.Cause(w.turn)
	}
	w.writeHeader()
	if w.gone {
		return nil
	}
	w.begin()
	var err error
	if w.isBuffered() {
		w.followTimeouts()
		err = w.buffer.addFlush()
	} else {
		err = w.onClient(func() error { return http.NewResponseController(w.ResponseWriter).Flush() })
	}
	if w.outlives(err) {
		return nil
	}
	return w.explain(err)
}

// Hijack implements [http.Hijacker].
func (w *Writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if w.status != 0 {
		w.begin()
		if _, err := w.buffer.awaitSent(); err != nil {
			return nil, nil, w.explain(err)
		}
	}
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.begun = true
		w.mu.Lock()
		w.hijacked = conn
		w.mu.Unlock()
	}
	return conn, rw, err
}

// SetWriteDeadline is what [http.ResponseController] looks for. It limits what is
// written from now on, and what is being written.
func (w *Writer) SetWriteDeadline(deadline time.Time) error {
	if w.isRevoked() {
		return context.Cause(w.turn)
	}
	return w.buffer.setDeadline(deadline)
}

// EnableFullDuplex is what [http.ResponseController] looks for. It has no effect
// once the response has begun, as without a queue.
func (w *Writer) EnableFullDuplex() error {
	if w.begun && w.isBuffered() {
		return nil
	}
	return http.NewResponseController(w.ResponseWriter).EnableFullDuplex()
}

// setDeadline sets the write deadline of the client. Caddy's writers are not made
// for two goroutines: while the sender writes, it sets the deadline there itself,
// before it writes on.
func (b *buffer) setDeadline(deadline time.Time) error {
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
func (b *buffer) interruptLocked(deadline time.Time) error {
	return http.NewResponseController(Innermost(b.to)).SetWriteDeadline(deadline)
}

// takeDeadlineLocked sets the deadline that was set meanwhile.
func (b *buffer) takeDeadlineLocked() {
	if b.deadline == nil {
		return
	}
	_ = http.NewResponseController(b.to).SetWriteDeadline(*b.deadline)
	b.deadline = nil
}

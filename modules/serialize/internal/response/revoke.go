package response

import (
	"net/http"
	"time"
)

// interruptInterval is how often a deadline is set again: Caddy sets one of its own
// before each read and write.
const interruptInterval = 50 * time.Millisecond

// Revoke ends the response because the turn was taken back. What blocks on the client
// returns. Any goroutine may call it, once Init has returned; after Deliver it does nothing.
func (b *Response) Revoke(cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.revoked == nil && !b.done {
		b.revoked = cause
		b.interruptLocked()
	}
}

// Revoked returns why the turn was taken back, or nil.
func (b *Response) Revoked() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.revoked
}

// refusal is the error of writing after the turn was revoked, or nil.
func (b *Response) refusal() error {
	cause := b.Revoked()
	b.broken = b.broken || cause != nil
	return cause
}

// enter begins a call that may block on the client, unless the turn was revoked. leave
// ends the call.
func (b *Response) enter() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.revoked != nil {
		b.broken = true
		return b.revoked
	}
	b.busy++
	return nil
}

func (b *Response) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busy--
}

// interruptLocked ends what blocks on the client, until the handlers have returned. It
// uses net/http's own writer, since those of Caddy are not made for two goroutines.
//
// The write deadline is left alone while nothing is written: over HTTP/2 it would reset
// the stream, although an answer is still to come. The read deadline is left alone once
// the body is here: net/http would take it for the end of the connection.
func (b *Response) interruptLocked() {
	past := time.Unix(1, 0)
	client := http.NewResponseController(innermost(b.w))
	if b.conn != nil {
		_ = b.conn.SetDeadline(past)
	} else if b.uploads() {
		_ = client.SetReadDeadline(past)
	}
	if b.conn == nil && b.busy > 0 {
		b.cut = client.SetWriteDeadline(past) == nil
	}
	b.again = time.AfterFunc(interruptInterval, b.interrupt)
}

func (b *Response) interrupt() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.done {
		b.interruptLocked()
	}
}

func (b *Response) uploads() bool { return b.Uploading != nil && b.Uploading() }

// settle ends the turn's part of the response. After that, nobody interrupts it.
func (b *Response) settle() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done {
		return
	}
	b.done = true
	if b.unwatch != nil {
		b.unwatch()
	}
	if b.again != nil {
		b.again.Stop()
	}
	if b.cut && b.conn == nil {
		_ = http.NewResponseController(innermost(b.w)).SetWriteDeadline(deadlineIn(serverOf(b.client).WriteTimeout))
	}
}

// innermost is the writer below all wrappers.
func innermost(w http.ResponseWriter) http.ResponseWriter {
	for {
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return w
		}
		w = wrapper.Unwrap()
	}
}

package response

import (
	"context"
	"net/http"
)

// Conclude decides what becomes of a response when the handlers have finished
// with err or a panic. It returns the error or the panic to finish with
// instead.
//
// A response that is whole goes to the client, even if the turn was revoked
// meanwhile. One that is not is taken back if the client has got nothing of it:
// the client gets the queue's answer. Otherwise it is broken off, because the
// client must not take the part that it has for the whole.
func (w *Writer) Conclude(r *http.Request, err error, thrown any) (any, error) {
	aborted := thrown == http.ErrAbortHandler
	whole := err == nil && !aborted && !w.refused && !w.unanswered
	switch {
	case thrown != nil && !aborted: // not ours to judge
	case IsRevocation(context.Cause(w.turn)):
		switch {
		case whole && !(w.begun && w.isBroken(r)):
		case !w.begun:
			w.takeBack()
			err, thrown = w.answer(err), nil
		case aborted || w.isBroken(r):
			w.abandoned, err, thrown = true, nil, http.ErrAbortHandler
		default:
			err = w.answer(err)
		}
	case w.refused || aborted && w.ends && r.Context().Err() != nil:
		w.abandoned = true // nobody reads it
	}
	if !w.abandoned {
		w.finish()
	}
	return thrown, err
}

// isBroken reports whether a response that has begun has no end.
func (w *Writer) isBroken(r *http.Request) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused || w.cutRead && w.http1 && r.Context().Err() != nil
}

// takeBack undoes a response that has not begun.
func (w *Writer) takeBack() {
	w.status, w.unanswered = 0, true
	if w.held != nil {
		w.held.free()
		w.held = nil
	}
	dropRepresentation(w.ResponseWriter.Header())
}

// Deliver returns when the client has the whole response, or will get no more of
// it. The turn may have ended.
func (w *Writer) Deliver() {
	defer w.timeouts.finish()
	switch {
	case w.abandoned:
		w.abandon()
	case w.begun:
		w.buffer.drain()
		addTrailers(w.ResponseWriter.Header(), w.header)
	case w.status != 0:
		w.deliverHeld()
	}
}

// deliverHeld writes a small response as a whole. net/http keeps it until the
// request returns, so it does not block.
func (w *Writer) deliverHeld() {
	late := w.restoreHeader()
	w.ResponseWriter.WriteHeader(w.status)
	if w.held != nil {
		_, _ = w.ResponseWriter.Write(w.held.bytes())
		w.held.free()
		w.held = nil
	}
	addTrailers(w.ResponseWriter.Header(), late)
}

// abandon drops what the client has not taken. It makes sure that the client
// gets at least a status, and ends what then still blocks.
func (w *Writer) abandon() {
	defer w.finish()
	w.buffer.discard()
	w.buffer.flushLast()
	w.limitSender()
	w.buffer.drain()
}

// IsDraining reports whether the client has not taken all of a response which
// it is to get.
func (w *Writer) IsDraining() bool {
	return !w.abandoned && w.begun && w.buffer.isSending()
}

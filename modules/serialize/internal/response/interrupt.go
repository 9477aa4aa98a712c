package response

import (
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

const (
	// answerTime is how long the error routes of a request may write whose turn
	// was revoked before they began.
	answerTime = 500 * time.Millisecond

	// interruptInterval is how often a deadline is set again: Caddy sets one of
	// its own before each read and write.
	interruptInterval = 50 * time.Millisecond
)

// Revoke ends the response.
func (w *Writer) Revoke() {
	w.revoked.Store(true)
	w.hangUp()
}

// hangUp ends what the handlers wait for.
func (w *Writer) hangUp() {
	w.buffer.stop()
	go w.interrupt()
}

// RevokeSoon revokes the response of error routes whose turn was revoked before they
// began. They have a moment to answer.
func (w *Writer) RevokeSoon() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers = true
	w.again = time.AfterFunc(answerTime, w.Revoke)
}

// limitSender ends what the sender waits for, after a moment.
func (w *Writer) limitSender() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.interruptsSender = true
	if w.again != nil {
		w.again.Stop()
	}
	w.again = time.AfterFunc(interruptInterval, w.interrupt)
}

// interrupt ends what blocks on the client, until nothing is to be interrupted
// any more.
func (w *Writer) interrupt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.finished {
		return
	}
	w.interruptLocked(time.Unix(1, 0))
	if w.again != nil {
		w.again.Stop()
	}
	w.again = time.AfterFunc(interruptInterval, w.interrupt)
}

// interruptLocked sets the deadlines of the connection. Not every connection has
// them.
//
// The read deadline stays as it is while nothing is read: net/http then watches
// for the end of the connection. It would take a deadline for that end, and
// cancel all later requests on the connection. The write deadline resets a
// stream of HTTP/2 at once, even if nothing is being written and an answer is
// still to come. So what the sender writes is not interrupted before the
// handlers have finished.
func (w *Writer) interruptLocked(deadline time.Time) {
	if w.hijacked != nil {
		_ = w.hijacked.SetDeadline(deadline)
		return
	}
	conn := http.NewResponseController(Innermost(w.ResponseWriter))
	if w.uploading {
		w.cutRead = conn.SetReadDeadline(deadline) == nil
	}
	if w.busy.Load() > 0 || w.interruptsSender {
		w.cutWrite = conn.SetWriteDeadline(deadline) == nil
	}
}

// finish gives the connection back. After that, interrupt does nothing.
func (w *Writer) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.finished {
		return
	}
	w.finished = true
	if w.again != nil {
		w.again.Stop()
	}
	if w.cutRead && w.http1 && !w.begun {
		w.ResponseWriter.Header().Set("Connection", "close") // nobody knows where its next request begins
	}
	if w.cutWrite && !w.refused {
		w.restoreLocked()
	}
}

// restoreLocked sets the write deadline as it is without a queue.
func (w *Writer) restoreLocked() {
	var deadline time.Time
	server, _ := w.turn.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if server != nil && server.WriteTimeout > 0 {
		deadline = time.Now().Add(time.Duration(server.WriteTimeout))
	}
	_ = http.NewResponseController(Innermost(w.ResponseWriter)).SetWriteDeadline(deadline)
}

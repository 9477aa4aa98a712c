package serialize

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// turnWriter writes the response of handlers that are inside.
//
// It outlives the client: it writes for as long as there is one, and then
// swallows the rest. The handlers run on to their end, as if somebody still
// listened: only then is the place really free.
//
// It does not outlive the turn. Once that is revoked, it writes no more, and a
// read from the client or a write to it that blocks is ended by the deadlines of
// the connection.
type turnWriter struct {
	caddyhttp.ResponseWriterWrapper
	turn      context.Context
	ends      bool // the request, with its client; then nothing outlives anything
	uploading bool // the client may still send of the body
	http1     bool

	gone       atomic.Bool  // the client
	started    atomic.Bool  // the response
	busy       atomic.Int32 // calls that may block on the client
	revoked    atomic.Bool
	refused    atomic.Bool // a write failed for the turn was revoked
	unanswered atomic.Bool // the response was left to the queue

	mu       sync.Mutex // of what follows; it is never held during a write
	finished bool       // the handlers have returned, so the connection is another's
	again    *time.Timer
	hijacked net.Conn
	cutRead  bool // the read deadline was set
	cutWrite bool // the write deadline was set
}

// initWriter makes w write to the client of a request.
func (v *visit) initWriter(w *turnWriter, to http.ResponseWriter, r *http.Request) {
	w.ResponseWriter, w.turn = to, v.ctx
	w.ends = v.handler.OnDisconnect != onDisconnectFinish
	w.uploading = v.uploading
	w.http1 = r.ProtoMajor == 1
}

// WriteHeader implements [http.ResponseWriter]. A handler that was cancelled
// takes it that its client is gone, and reverse_proxy says so. Where it was the
// queue that ended the turn, the client is there and gets the queue's answer.
func (w *turnWriter) WriteHeader(status int) {
	if status == statusClientClosed && isRevocation(context.Cause(w.turn)) {
		w.unanswered.Store(!w.started.Load())
		return
	}
	informs := status >= 100 && status < 200 && status != http.StatusSwitchingProtocols
	if !w.enter(!informs) {
		return
	}
	w.ResponseWriter.WriteHeader(status)
	w.leave(nil)
}

// Write implements [http.ResponseWriter].
func (w *turnWriter) Write(p []byte) (int, error) {
	if !w.enter(true) {
		return 0, context.Cause(w.turn)
	}
	if w.gone.Load() {
		w.leave(nil)
		return len(p), nil
	}
	n, err := w.ResponseWriter.Write(p)
	if w.leave(err) {
		return len(p), nil
	}
	return n, err
}

// ReadFrom implements [io.ReaderFrom].
func (w *turnWriter) ReadFrom(r io.Reader) (int64, error) {
	if !w.enter(true) {
		return 0, context.Cause(w.turn)
	}
	if w.gone.Load() {
		w.leave(nil)
		return io.Copy(onlyWriter{w}, r) // until the turn is revoked
	}
	n, err := w.ResponseWriterWrapper.ReadFrom(r)
	if !w.leave(err) {
		return n, err
	}
	// If it was reading that failed, it fails again.
	more, err := io.Copy(onlyWriter{w}, r)
	return n + more, err
}

type onlyWriter struct{ io.Writer }

// FlushError is what [http.ResponseController] looks for.
func (w *turnWriter) FlushError() error {
	if !w.enter(true) {
		return context.Cause(w.turn)
	}
	if w.gone.Load() {
		w.leave(nil)
		return nil
	}
	err := http.NewResponseController(w.ResponseWriter).Flush()
	if w.leave(err) {
		return nil
	}
	return err
}

// Hijack implements [http.Hijacker].
func (w *turnWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.started.Store(true)
		w.mu.Lock()
		w.hijacked = conn
		w.mu.Unlock()
	}
	return conn, rw, err
}

// enter begins what may block on the client. It reports whether it may be done.
func (w *turnWriter) enter(starts bool) bool {
	w.busy.Add(1) // before the look at revoked; see interrupt
	switch {
	case !w.revoked.Load():
		if starts {
			w.started.Store(true)
		}
		return true
	case w.started.Load():
		w.refused.Store(true)
	case starts && !w.unanswered.Swap(true):
		dropRepresentation(w.Header())
	}
	w.busy.Add(-1)
	return false
}

// leave ends what enter began. It reports whether an error means that the client
// is gone, or as good as gone, and the handlers need not know.
func (w *turnWriter) leave(err error) (outlived bool) {
	w.busy.Add(-1)
	if err == nil || errors.Is(err, http.ErrBodyNotAllowed) || errors.Is(err, http.ErrContentLength) ||
		errors.Is(err, http.ErrHijacked) || errors.Is(err, http.ErrNotSupported) {
		return false
	}
	if w.revoked.Load() {
		w.refused.Store(true)
		return false
	}
	if w.ends {
		return false
	}
	w.gone.Store(true)
	return true
}

// dropRepresentation removes what a handler has said of a response that is not
// sent.
func dropRepresentation(header http.Header) {
	for _, name := range []string{
		"Accept-Ranges", "Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Length",
		"Content-Location", "Content-Range", "Content-Type", "Etag", "Expires", "Last-Modified", "Location", "Trailer",
	} {
		header.Del(name)
	}
}

const (
	// answerTime is how long the error routes of a request may write whose turn
	// was revoked before they began.
	answerTime = 500 * time.Millisecond

	// interruptInterval is how often a deadline is set again: Caddy sets one of
	// its own before each read and write.
	interruptInterval = 50 * time.Millisecond
)

// revoke ends the response.
func (w *turnWriter) revoke() {
	w.revoked.Store(true)
	go w.interrupt()
}

// limit revokes the response after some time.
func (w *turnWriter) limit(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.again = time.AfterFunc(d, w.revoke)
}

// interrupt ends what blocks on the client, until the handlers have returned.
func (w *turnWriter) interrupt() {
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
// The read deadline is left alone where nothing is read: there, net/http looks
// for the end of the connection, takes a deadline for it, and cancels all later
// requests on it. The write deadline resets a stream of HTTP/2 at once, also
// where nothing is being written and there is an answer to come.
func (w *turnWriter) interruptLocked(deadline time.Time) {
	if w.hijacked != nil {
		_ = w.hijacked.SetDeadline(deadline)
		return
	}
	conn := http.NewResponseController(innermost(w.ResponseWriter))
	if w.uploading {
		w.cutRead = conn.SetReadDeadline(deadline) == nil
	}
	if w.busy.Load() > 0 {
		w.cutWrite = conn.SetWriteDeadline(deadline) == nil
	}
}

// finish gives the connection back. After that, interrupt does nothing.
func (w *turnWriter) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.finished {
		return
	}
	w.finished = true
	if w.again != nil {
		w.again.Stop()
	}
	if w.cutRead && w.http1 && !w.started.Load() {
		w.Header().Set("Connection", "close") // nobody knows where its next request begins
	}
	if w.cutWrite && !w.refused.Load() {
		w.restoreLocked()
	}
}

// restoreLocked sets the write deadline as it is without a queue.
func (w *turnWriter) restoreLocked() {
	var deadline time.Time
	server, _ := w.turn.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if server != nil && server.WriteTimeout > 0 {
		deadline = time.Now().Add(time.Duration(server.WriteTimeout))
	}
	_ = http.NewResponseController(innermost(w.ResponseWriter)).SetWriteDeadline(deadline)
}

// isBroken reports whether the client has got the beginning of a response that
// has no end.
func (w *turnWriter) isBroken(r *http.Request) bool {
	if !w.started.Load() || !isRevocation(context.Cause(w.turn)) {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused.Load() || w.cutRead && w.http1 && r.Context().Err() != nil
}

// Interface guards
var (
	_ http.ResponseWriter = (*turnWriter)(nil)
	_ http.Hijacker       = (*turnWriter)(nil)
	_ io.ReaderFrom       = (*turnWriter)(nil)
)

// Package buffer keeps a response until its request's turn is over, as nginx keeps what
// an upstream sends. A client that reads slowly then holds up nobody.
//
// A response is in one of three states. First it is kept: nothing of it has reached the
// client, so it can still be replaced. It is passed once the client has its beginning:
// because it is a stream, or too large to be kept. It is dropped if the client has gone,
// and the handlers run on.
//
// Only the request's goroutine writes to the client, during the turn or after it. Another
// one may revoke the turn; see revoke.go.
package buffer

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Response is the response writer of handlers that hold a turn. Init begins a response,
// Serve runs the handlers, Deliver sends what was kept, and Close frees the memory.
type Response struct {
	Options
	w       http.ResponseWriter // to the client
	request *http.Request       // as the client sent it

	status  int      // of the response; 0 before the handlers have given one
	left    int64    // of the length that the handlers have announced; less than 0 if none
	before  snapshot // the header before the handlers
	head    snapshot // the header when they gave the status
	first   *chunk   // of what is kept; nil after Close
	last    *chunk
	kept    int64 // bytes
	flushed bool  // the handlers wanted the client to see what is kept

	passes  bool // nothing more is kept
	streams bool // it is of a streaming kind
	sent    bool // the client may have got a part
	gone    bool // the client has; the rest is dropped
	broken  bool // a part was refused, because the turn was revoked
	aborted bool // the handlers panicked with http.ErrAbortHandler
	unwatch func() bool

	mu       sync.Mutex // guards what follows; never held during a write
	revoked  error
	busy     int      // calls that may block on the client
	conn     net.Conn // hijacked
	done     bool     // the turn is over: no deadline is touched any more
	cutRead  bool
	cutWrite bool
	again    *time.Timer
}

// Options are what a response depends on.
type Options struct {
	// Limit is how many bytes are kept. With 0, everything passes at once.
	Limit int64

	// Finish drops what is written for a client that has gone, and the handlers do not
	// notice. A stream ends with its client all the same.
	Finish bool

	// Uploading says that the client may still send the body.
	Uploading bool

	// Cancel ends the handlers' context if the client of a stream has gone. It may be
	// nil if they have the client's context.
	Cancel context.CancelCauseFunc
}

// Init begins the response to a request.
func (b *Response) Init(w http.ResponseWriter, r *http.Request, o Options) {
	*b = Response{Options: o, w: w, request: r, first: newChunk()}
	b.last = b.first
	b.before, b.head = b.first.before, b.first.head
	b.before.take(w.Header())
}

// Serve runs the handlers. A panic with [http.ErrAbortHandler] is left to Deliver.
func (b *Response) Serve(next caddyhttp.Handler, r *http.Request) error {
	defer func() {
		if thrown := recover(); thrown == http.ErrAbortHandler {
			b.aborted = true
		} else if thrown != nil {
			panic(thrown)
		}
	}()
	return next.ServeHTTP(b, r)
}

// Header implements [http.ResponseWriter].
func (b *Response) Header() http.Header { return b.w.Header() }

// Unwrap is what [http.ResponseController] looks for.
func (b *Response) Unwrap() http.ResponseWriter { return b.w }

// WriteHeader implements [http.ResponseWriter]. Interim answers pass at once.
func (b *Response) WriteHeader(status int) {
	switch {
	case b.status != 0:
	case status < 100 || status > 999:
		b.w.WriteHeader(status) // which panics
	case status < 200 && status != http.StatusSwitchingProtocols:
		if b.enter() == nil {
			defer b.leave()
			b.w.WriteHeader(status)
		}
	default:
		b.setStatus(status)
	}
}

// setStatus decides whether the response is kept. Nothing of it is sent before its body,
// as with net/http.
func (b *Response) setStatus(status int) {
	header := b.w.Header()
	b.status, b.left = status, -1
	b.head.take(header)
	if length, err := strconv.ParseUint(header.Get("Content-Length"), 10, 63); err == nil {
		b.left = int64(length)
	}
	b.streams = b.request.Method == http.MethodConnect || isStream(header)
	tooLong := b.left > b.Limit && b.hasBody() && b.request.Method != http.MethodHead
	b.passes = b.Limit == 0 || b.streams || tooLong
	if b.streams && b.Finish && b.Cancel != nil {
		b.unwatch = context.AfterFunc(b.request.Context(), func() { b.Cancel(context.Canceled) })
	}
}

func (b *Response) hasBody() bool {
	return b.status >= 200 && b.status != http.StatusNoContent && b.status != http.StatusNotModified
}

// Write implements [http.ResponseWriter].
func (b *Response) Write(p []byte) (int, error) {
	if err := b.refusal(); err != nil {
		return 0, err
	}
	b.WriteHeader(http.StatusOK) // unless there is a status
	switch {
	case len(p) == 0:
		return 0, nil
	case !b.hasBody():
		return 0, http.ErrBodyNotAllowed
	case b.left >= 0 && int64(len(p)) > b.left:
		b.left = 0 // net/http takes no more after that
		return 0, http.ErrContentLength
	}
	b.count(int64(len(p)))
	if b.keep(p) || b.gone {
		return len(p), nil
	}
	n, err := 0, b.begin(p)
	if err == nil && !b.gone {
		n, err = b.pass(p)
	}
	if b.gone {
		return len(p), nil
	}
	return n, err
}

// count notes how much of the announced length has been written.
func (b *Response) count(written int64) {
	if b.left >= 0 {
		b.left = max(0, b.left-written)
	}
}

// keep reports whether p is kept.
func (b *Response) keep(p []byte) bool {
	if b.passes || b.kept+int64(len(p)) > b.Limit {
		b.passes = true
		return false
	}
	b.kept += int64(len(p))
	for len(p) > 0 {
		if b.last.isFull() {
			b.last.next = newChunk()
			b.last = b.last.next
		}
		p = p[b.last.append(p):]
	}
	return true
}

// begin sends what was kept, unless it has been sent. next is the body after that.
func (b *Response) begin(next []byte) error {
	if b.sent {
		return nil
	}
	if err := b.enter(); err != nil {
		return err
	}
	defer b.leave()
	return b.judge(b.send(next, false))
}

// pass writes to the client.
func (b *Response) pass(p []byte) (int, error) {
	if err := b.enter(); err != nil {
		return 0, err
	}
	defer b.leave()
	n, err := b.w.Write(p)
	return n, b.judge(err)
}

// judge decides what an error of writing means for the handlers.
func (b *Response) judge(err error) error {
	switch {
	case err == nil, errors.Is(err, http.ErrBodyNotAllowed), errors.Is(err, http.ErrContentLength),
		errors.Is(err, http.ErrHijacked), errors.Is(err, http.ErrNotSupported):
		return err
	case b.Revoked() != nil:
		return b.refusal()
	case b.Finish && !b.streams:
		b.gone = true
		return nil
	case b.streams && b.Cancel != nil:
		b.Cancel(context.Canceled)
	}
	return err
}

// ReadFrom implements [io.ReaderFrom], so that the system sends files that pass.
func (b *Response) ReadFrom(r io.Reader) (n int64, err error) {
	scratch := newChunk()
	defer scratch.free()
	for b.status == 0 || !b.passes { // where there is nothing to read, there is no status
		read, err := r.Read(scratch.data[:])
		written, failed := 0, error(nil)
		if read > 0 {
			written, failed = b.Write(scratch.data[:read])
		}
		n += int64(written)
		switch {
		case failed != nil:
			return n, failed
		case err == io.EOF:
			return n, nil
		case err != nil:
			return n, err
		}
	}
	sent, err := b.passFrom(r)
	n += sent
	if b.Revoked() != nil || err == nil && !b.gone {
		return n, err
	}
	// Was it the client that failed, or r? A client fails again in Write.
	rest, again := io.CopyBuffer(struct{ io.Writer }{b}, r, scratch.data[:])
	if again != nil || b.gone {
		err = again
	}
	return n + rest, err
}

// passFrom lets the client's writer read from r.
func (b *Response) passFrom(r io.Reader) (int64, error) {
	if !b.hasBody() {
		return 0, http.ErrBodyNotAllowed
	}
	if err := b.begin(nil); err != nil || b.gone {
		return 0, err
	}
	if err := b.enter(); err != nil {
		return 0, err
	}
	defer b.leave()
	client := caddyhttp.ResponseWriterWrapper{ResponseWriter: b.w}
	n, err := client.ReadFrom(r)
	b.count(n)
	return n, err
}

// Flush implements [http.Flusher].
func (b *Response) Flush() { _ = b.FlushError() }

// FlushError is what [http.ResponseController] looks for. What is kept stays so.
func (b *Response) FlushError() error {
	if err := b.refusal(); err != nil {
		return err
	}
	b.WriteHeader(http.StatusOK) // unless there is a status
	if !b.passes {
		b.flushed = true
		return nil
	}
	if err := b.begin(nil); err != nil || b.gone {
		return err
	}
	if err := b.enter(); err != nil {
		return err
	}
	defer b.leave()
	return b.judge(http.NewResponseController(b.w).Flush())
}

// Hijack implements [http.Hijacker]. The connection is the handlers' own.
func (b *Response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if b.status != 0 {
		if err := b.begin(nil); err != nil {
			return nil, nil, err
		}
	}
	conn, rw, err := http.NewResponseController(b.w).Hijack()
	if err == nil {
		b.sent, b.passes = true, true
		b.mu.Lock()
		defer b.mu.Unlock()
		b.conn = conn
	}
	return conn, rw, err
}

// Sent reports whether the client may have got a part of the response.
func (b *Response) Sent() bool { return b.sent }

// Interface guards
var (
	_ http.ResponseWriter = (*Response)(nil)
	_ http.Flusher        = (*Response)(nil)
	_ http.Hijacker       = (*Response)(nil)
	_ io.ReaderFrom       = (*Response)(nil)
)

// Package response keeps a response until its request's turn is over, as nginx keeps what
// an upstream sends. So a client that reads slowly holds nobody up.
//
// A response is kept at first: the client has got nothing of it, and it can be replaced.
// It passes once it is a stream, or too large to be kept. If the client has gone then, the
// rest is dropped, and the handlers run on.
//
// Only the request's goroutine writes to the client, during the turn or after it.
// Another one may revoke the turn.
package response

import (
	"bufio"
	"cmp"
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
	w      http.ResponseWriter // to the client
	client context.Context     // ends when the client has gone
	method string              // of the request, as the client sent it
	major  int                 // of the version of HTTP
	kept   *kept               // nil after Close

	status  int   // of the response; 0 before the handlers have given one
	left    int64 // of the length that the handlers have announced; less than 0 if none
	flushed bool  // the handlers wanted the client to see what is kept
	passes  bool  // nothing more is kept
	streams bool  // it is of a streaming kind
	sent    bool  // the client may have got a part
	gone    bool  // the client has; the rest is dropped
	broken  bool  // a part was refused, because the turn was revoked
	aborted bool  // the handlers panicked with http.ErrAbortHandler
	unwatch func() bool

	mu      sync.Mutex // guards what follows; never held during a write
	revoked error
	busy    int      // calls that may block on the client
	conn    net.Conn // hijacked
	done    bool     // the turn is over: deadlines are left alone
	cut     bool     // the write deadline was set
	again   *time.Timer
}

// Options are what a response depends on.
type Options struct {
	// Limit is how many bytes are kept. With 0, everything passes at once.
	Limit int64

	// Finish drops what is written for a client that has gone, and the handlers do not
	// notice. A stream ends with its client all the same.
	Finish bool

	// Uploading reports whether the client may still send the body. Nil means that it does
	// not.
	Uploading func() bool

	// Cancel ends the handlers' context if the client of a stream has gone. It may be
	// nil if they have the client's context.
	Cancel context.CancelCauseFunc
}

// Init begins the response to a request.
func (b *Response) Init(w http.ResponseWriter, r *http.Request, o Options) {
	*b = Response{
		Options: o, w: w, client: r.Context(), method: r.Method, major: r.ProtoMajor, kept: pool.Get().(*kept),
	}
	b.kept.before.take(w.Header())
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
		_ = b.onClient(nil, func() error { b.w.WriteHeader(status); return nil })
	default:
		b.setStatus(status)
	}
}

// setStatus decides whether the response is kept. It sends nothing yet, as net/http
// does not.
func (b *Response) setStatus(status int) {
	header := b.w.Header()
	b.status, b.left = status, -1
	b.kept.head.take(header)
	if announced := header.Get("Content-Length"); announced != "" { // an error costs memory
		if length, err := strconv.ParseUint(announced, 10, 63); err == nil {
			b.left = int64(length)
		}
	}
	b.streams = isStream(header) || b.method == http.MethodConnect
	b.passes = b.streams || b.Limit == 0 ||
		b.left > b.Limit && b.hasBody() && b.method != http.MethodHead
	b.watch()
}

// watch ends a stream when its client has gone. It does so with every response that
// passes, unless that is to be dropped then.
func (b *Response) watch() {
	if b.unwatch != nil || !b.passes || b.Finish && !b.streams {
		return
	}
	b.unwatch = context.AfterFunc(b.client, func() {
		if b.Cancel != nil {
			b.Cancel(context.Canceled)
		}
		b.Revoke(context.Canceled)
	})
}

func (b *Response) hasBody() bool {
	return b.status >= 200 && b.status != http.StatusNoContent && b.status != http.StatusNotModified
}

// Write implements [http.ResponseWriter].
func (b *Response) Write(p []byte) (n int, err error) {
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
	case b.left >= 0:
		b.left -= int64(len(p))
	}
	if !b.passes && int64(b.kept.body.Len()+len(p)) <= b.Limit {
		return b.kept.body.Write(p)
	}
	b.passes = true
	b.watch()
	err = b.onClient(p, func() (err error) { n, err = b.w.Write(p); return err })
	if b.gone {
		n = len(p)
	}
	return n, err
}

// onClient does what may block on the client, after it has sent what was kept. next is
// the body after that.
func (b *Response) onClient(next []byte, write func() error) error {
	if b.gone {
		return nil
	}
	if err := b.enter(); err != nil {
		return err
	}
	defer b.leave()
	if b.status != 0 && !b.sent {
		if err := b.send(next, false); err != nil {
			return b.judge(err)
		}
	}
	return b.judge(write())
}

// judge decides what an error of writing means for the handlers.
func (b *Response) judge(err error) error {
	switch {
	case err == nil, errors.Is(err, http.ErrBodyNotAllowed), errors.Is(err, http.ErrContentLength),
		errors.Is(err, http.ErrHijacked), errors.Is(err, http.ErrNotSupported):
		return err
	case b.refusal() != nil:
		return b.refusal()
	case b.Finish && !b.streams:
		b.gone = true
		return nil
	case b.streams && b.Cancel != nil:
		b.Cancel(context.Canceled)
	}
	return err
}

// ReadFrom implements [io.ReaderFrom]. The system itself sends files that pass.
func (b *Response) ReadFrom(r io.Reader) (n int64, err error) {
	scratch := scratches.Get().(*[16 << 10]byte)
	defer scratches.Put(scratch)
	byWrite := func(r io.Reader) (int64, error) { return io.CopyBuffer(struct{ io.Writer }{b}, r, scratch[:]) }

	var kept int64
	if !b.passes { // where there is nothing to read, there is no status
		room := b.Limit - int64(b.kept.body.Len()) + 1
		if kept, err = byWrite(io.LimitReader(r, room)); err != nil || kept < room {
			return kept, err
		}
	}
	if !b.gone && b.hasBody() {
		client := caddyhttp.ResponseWriterWrapper{ResponseWriter: b.w}
		_ = b.onClient(nil, func() error { n, _ = client.ReadFrom(r); return nil })
		if b.left > 0 {
			b.left = max(0, b.left-n)
		}
	}
	// If the client failed, it fails again in Write; if r did, it does so in Read.
	rest, err := byWrite(r)
	return kept + n + rest, err
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
	return b.onClient(nil, http.NewResponseController(b.w).Flush)
}

// Hijack implements [http.Hijacker]. The connection is the handlers' own.
func (b *Response) Hijack() (conn net.Conn, rw *bufio.ReadWriter, err error) {
	err = b.onClient(nil, func() (err error) {
		conn, rw, err = http.NewResponseController(b.w).Hijack()
		return err
	})
	if conn == nil {
		return nil, nil, cmp.Or(err, net.ErrClosed) // the client has gone
	}
	b.sent, b.passes = true, true
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conn = conn
	return conn, rw, nil
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

// Package response keeps a response until its request's turn is over, as nginx keeps what
// an upstream sends. So a client that reads slowly holds nobody up.
//
// Only the request's goroutine writes to the client, during the turn or after it.
package response

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/body"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/turn"
)

// Response is the response writer of handlers that hold a turn. Init begins a response,
// Serve runs the handlers, and Deliver sends what was kept.
type Response struct {
	w       http.ResponseWriter // to the client
	turn    *turn.Context
	limit   int64
	major   int         // of the version of HTTP
	accept  func()      // of the WebSocket that the request opens over HTTP/2 or HTTP/3, or nil
	uploads func() bool // reports whether the client may still send the body, or is nil
	state   state
	sending atomic.Bool // a write may block on the client
	ended   bool        // the context ended before the handlers did
	streams bool        // it is of a streaming kind
	status  int         // 0 before the handlers have given one
	length  int64       // that the handlers have announced, or -1
	written int64       // by them
	kept    *kept
}

// state is what becomes of what the handlers write.
type state uint8

const (
	keeping  state = iota // the client has got nothing of the response, which can be replaced
	passing               // it is a stream, or too large to be kept, and has begun
	dropping              // the client has gone
)

// kept is the memory of a response.
type kept struct {
	before http.Header // of the client's writer, before the handlers
	head   http.Header // when they gave the status
	body   bytes.Buffer
}

var pool = sync.Pool{New: func() any { return &kept{before: make(http.Header), head: make(http.Header)} }}

// Init begins the response to a request that gets its turn. limit is how many bytes are
// kept, whatever the handlers flush. With 0, everything passes at once.
func (b *Response) Init(w http.ResponseWriter, r *http.Request, t *turn.Context, limit int64) {
	*b = Response{
		w: w, turn: t, limit: limit, major: r.ProtoMajor, accept: body.Tunnel(r), uploads: body.Stream(r), kept: pool.Get().(*kept),
	}
	maps.Copy(b.kept.before, w.Header())
	if b.uploads != nil {
		t.Interrupt(b.cutUpload)
	}
}

// Serve runs the handlers. If they panic with [http.ErrAbortHandler], it returns that.
func (b *Response) Serve(next caddyhttp.Handler, r *http.Request) (err error) {
	defer func() {
		b.ended = b.turn.Err() != nil
		if thrown := recover(); thrown == http.ErrAbortHandler {
			err = http.ErrAbortHandler
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
	if b.status != 0 {
		return
	}
	if status < 200 && status != http.StatusSwitchingProtocols {
		if b.turn.Err() == nil {
			defer b.turn.Interrupt(b.cutWrites)()
			b.sending.Store(true)
			defer b.sending.Store(false)
			b.w.WriteHeader(status)
		}
		return
	}
	header := b.w.Header()
	maps.Copy(b.kept.head, header)
	var err error
	if b.length, err = strconv.ParseInt(cmp.Or(header.Get("Content-Length"), "-1"), 10, 64); err != nil {
		b.length = -1
	}
	b.status, b.streams = status, isStream(header)
	if b.streams {
		_ = b.pass(func() error { return nil })
	}
}

// isStream reports whether a response is of a kind that its client reads while it is
// being written.
func isStream(header http.Header) bool {
	kind, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	switch kind = strings.ToLower(strings.TrimSpace(kind)); kind {
	case "text/event-stream", "application/x-ndjson", "multipart/x-mixed-replace":
		return true
	}
	return strings.HasPrefix(kind, "application/grpc") || // and application/grpc+proto, application/grpc-web
		strings.EqualFold(header.Get("X-Accel-Buffering"), "no") || // as nginx knows it
		caddyhttp.IsIncremental(header)
}

// fits reports whether the response is kept until the turn is over, as far as is known.
func (b *Response) fits() bool {
	return !b.streams && b.limit > 0 && max(b.length, b.written) <= b.limit
}

// unsent is how much of a body net/http keeps, in bytes, with the head and until the
// handlers flush. So much is kept even of a response that passes at once: the client has
// got nothing of it, and it can be replaced.
const unsent = 2 << 10

// Write implements [http.ResponseWriter].
func (b *Response) Write(p []byte) (n int, err error) {
	b.WriteHeader(http.StatusOK) // unless there is a status
	if b.turn.Err() != nil {
		return 0, context.Cause(b.turn)
	}
	b.written += int64(len(p))
	switch {
	case b.length >= 0 && b.written > b.length:
		return 0, http.ErrContentLength // as net/http, which takes nothing of it
	case b.state == keeping && (b.fits() || b.written <= unsent):
		return b.kept.body.Write(p)
	}
	err = b.pass(func() error { n, err = b.w.Write(p); return err })
	if b.state == dropping {
		n = len(p)
	}
	return n, err
}

// Flush implements [http.Flusher].
func (b *Response) Flush() { _ = b.FlushError() }

// FlushError is what [http.ResponseController] looks for. A response that fits stays kept.
// Handlers accept a WebSocket over HTTP/2 or HTTP/3 by flushing a status of success alone.
func (b *Response) FlushError() error {
	b.WriteHeader(http.StatusOK) // unless there is a status
	if b.accept != nil && b.status < 300 && b.written == 0 {
		b.accept()
		b.streams = true
	}
	if b.state == keeping && b.fits() {
		return nil
	}
	return b.pass(http.NewResponseController(b.w).Flush)
}

// Hijack implements [http.Hijacker]. The connection is the handlers' own.
func (b *Response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if b.status != 0 {
		_ = b.pass(func() error { return nil })
	}
	conn, rw, err := http.NewResponseController(b.w).Hijack()
	if err != nil {
		return nil, nil, err
	}
	b.state = passing
	b.turn.Interrupt(func() { _ = conn.SetDeadline(turn.Past) })
	return conn, rw, nil
}

// pass begins to send the response, unless it has begun, and then does more on the client.
// It decides what an error means for the handlers.
func (b *Response) pass(more func() error) error {
	if b.state == dropping {
		return nil
	}
	b.sending.Store(true)
	defer b.sending.Store(false)
	err := b.turn.Err()
	if err == nil && b.state == keeping {
		b.state = passing
		if b.streams {
			b.turn.EndWithClient()
		}
		b.turn.Interrupt(b.cutWrites)
		err = b.send()
	}
	if err == nil {
		err = more()
	}
	switch {
	case err == nil || errors.Is(err, http.ErrNotSupported):
		return err
	case b.turn.Err() != nil:
		return context.Cause(b.turn)
	case b.turn.OutlivesClient:
		b.state = dropping
		return nil
	}
	return err
}

// cutWrites ends a write to the client. There is no deadline while an answer can still be
// given: over HTTP/2, it resets the stream even if nothing is written.
func (b *Response) cutWrites() {
	if b.sending.Load() {
		b.turn.CutWrites(b.w)
	}
}

// cutUpload ends reads of the body while the client may still send a part of it. Later, a
// read deadline ends the request's context, and the error routes need that.
func (b *Response) cutUpload() {
	if b.uploads() {
		b.turn.CutReads(b.w, b.major)
	}
}

// send writes the head and what was kept.
func (b *Response) send() error {
	header, body := b.w.Header(), b.kept.body.Bytes()
	var late http.Header // what the handlers have made of it since they gave the status
	if !maps.EqualFunc(header, b.kept.head, slices.Equal) {
		late = header.Clone()
		replace(header, b.kept.head)
		for name, values := range late {
			if strings.HasPrefix(name, http.TrailerPrefix) {
				header[name] = values // or HTTP/1 would leave no room for trailers
			}
		}
	}
	b.w.WriteHeader(b.status)
	var err error
	if len(body) > 0 {
		_, err = b.w.Write(body)
	}
	for name, values := range late { // of which the server picks the trailers
		if !slices.Equal(values, b.kept.head[name]) {
			header[name] = values
		}
	}
	return err
}

// replace makes a header what another one is.
func replace(header, by http.Header) {
	clear(header)
	maps.Copy(header, by)
}

// Deliver ends the response after the turn. err is what Serve returned; the caller has to
// return what Deliver returns.
//
// A response that is still kept can be replaced: by the error routes if the handlers
// failed, and by 504 if the turn was revoked. One that has begun can only be broken off,
// by a panic: the client must not take the part that it has for the whole.
func (b *Response) Deliver(err error) error {
	defer b.free()
	begun := b.state == keeping && b.status != 0
	revoked := b.turn.Revoked()
	switch {
	case b.state == keeping && revoked != nil:
		replace(b.w.Header(), b.kept.before)
		if b.major == 1 && b.uploads != nil && b.uploads() {
			b.w.Header().Set("Connection", "close") // nobody knows where its next request begins
		}
		return caddyhttp.Error(http.StatusGatewayTimeout, revoked.Cause)
	case err == http.ErrAbortHandler, b.state == passing && b.ended:
		if begun { // the client sees the part
			_ = b.send()
			_ = http.NewResponseController(b.w).Flush()
		}
		panic(http.ErrAbortHandler)
	case begun && err != nil:
		replace(b.w.Header(), b.kept.before)
	case begun:
		_ = b.send() // if the client has gone, nobody needs to know
	}
	return err
}

// reusable is how much memory of a body is used again, in bytes.
const reusable = 1 << 20

func (b *Response) free() {
	k := b.kept
	b.kept = nil
	if k.body.Cap() > reusable || len(k.head) > 100 { // a map never shrinks
		return
	}
	clear(k.before)
	clear(k.head)
	k.body.Reset()
	pool.Put(k)
}

// Interface guards
var (
	_ http.ResponseWriter = (*Response)(nil)
	_ http.Flusher        = (*Response)(nil)
	_ http.Hijacker       = (*Response)(nil)
)

// Package response keeps a response until its request's turn is over, as nginx keeps what
// an upstream sends. So a client that reads slowly holds nobody up.
//
// Only the request's goroutine writes to the client, during the turn or after it.
// Another one may revoke the turn.
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
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Response is the response writer of handlers that hold a turn. Init begins a response,
// Serve runs the handlers, and Deliver sends what was kept.
type Response struct {
	Options
	w       http.ResponseWriter // to the client
	client  context.Context     // ends when the client has gone
	major   int                 // of the version of HTTP
	streams bool                // it is of a streaming kind
	state   state
	status  int   // 0 before the handlers have given one
	length  int64 // that the handlers have announced, or -1
	written int64 // by them
	kept    *kept

	mu      sync.Mutex // guards what follows; never held during a write
	revoked error
	since   time.Time // when it was revoked
	sending bool      // a write may block on the client
	conn    net.Conn  // hijacked
	over    bool      // the handlers have returned
}

// state is what becomes of what the handlers write.
type state uint8

const (
	keeping  state = iota // the client has got nothing of the response, which can be replaced
	passing               // it is a stream, or too large to be kept, and has begun
	dropping              // the client has gone
)

// Options are what a response depends on.
type Options struct {
	// Limit is how many bytes are kept, whatever the handlers flush. With 0, everything passes
	// at once.
	Limit int64

	// Finish drops what is written for a client that has gone, and the handlers do not
	// notice. A stream ends with its client all the same.
	Finish bool

	// Accept accepts the WebSocket that the request opens over HTTP/2 or HTTP/3, and is nil
	// if it opens none. The handlers accept it by flushing a status of success alone.
	Accept func()

	// Uploading reports whether the client may still send the body. Nil means that it does
	// not.
	Uploading func() bool

	// Cancel ends the handlers' context.
	Cancel context.CancelCauseFunc
}

// kept is the memory of a response.
type kept struct {
	before http.Header // of the client's writer, before the handlers
	head   http.Header // when they gave the status
	body   bytes.Buffer
}

var pool = sync.Pool{New: func() any { return &kept{before: make(http.Header), head: make(http.Header)} }}

// Init begins the response to a request.
func (b *Response) Init(w http.ResponseWriter, r *http.Request, o Options) {
	*b = Response{
		Options: o, w: w, client: r.Context(), major: r.ProtoMajor, kept: pool.Get().(*kept),
	}
	maps.Copy(b.kept.before, w.Header())
}

// Serve runs the handlers. If they panic with [http.ErrAbortHandler], it returns that.
func (b *Response) Serve(next caddyhttp.Handler, r *http.Request) (err error) {
	defer func() {
		b.mu.Lock()
		b.over = true
		b.mu.Unlock()
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
	switch {
	case b.status != 0:
	case status < 100 || status > 999:
		b.w.WriteHeader(status) // which panics
	case status < 200 && status != http.StatusSwitchingProtocols:
		_ = b.onClient(func() error { b.w.WriteHeader(status); return nil })
	default:
		header := b.w.Header()
		maps.Copy(b.kept.head, header)
		b.status = status
		b.length = announced(header)
		if b.streams = isStream(header); b.streams {
			_ = b.judge(b.onClient(b.pass))
		}
	}
}

// unsent is how much of a body net/http keeps, in bytes, with the head and until the
// handlers flush.
const unsent = 2 << 10

// room is how much of the body may be kept. Even of a response that passes at once, that is
// what net/http would keep. So the client has got nothing of it, and it can be replaced.
func (b *Response) room() int64 {
	if b.length > b.Limit {
		return unsent
	}
	return max(b.Limit, unsent)
}

// fits reports whether the response is kept until the turn is over, as far as is known.
func (b *Response) fits() bool {
	return !b.streams && b.Limit > 0 && max(b.length, b.written) <= b.Limit
}

// announced is the length that a header announces, or -1.
func announced(header http.Header) int64 {
	length, err := strconv.ParseInt(cmp.Or(header.Get("Content-Length"), "-1"), 10, 64)
	if err != nil {
		return -1
	}
	return length
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

// Write implements [http.ResponseWriter].
func (b *Response) Write(p []byte) (n int, err error) {
	b.WriteHeader(http.StatusOK) // unless there is a status
	if err := b.cause(); err != nil {
		return 0, err
	}
	if b.written += int64(len(p)); b.length >= 0 && b.written > b.length {
		return 0, http.ErrContentLength // as net/http, which takes nothing of it
	}
	if b.state == keeping && b.written <= b.room() {
		return b.kept.body.Write(p)
	}
	err = b.judge(b.onClient(func() (err error) {
		if err = b.pass(); err == nil && b.state == passing {
			n, err = b.w.Write(p)
		}
		return err
	}))
	if b.state == dropping {
		n = len(p)
	}
	return n, err
}

// Flush implements [http.Flusher].
func (b *Response) Flush() { _ = b.FlushError() }

// FlushError is what [http.ResponseController] looks for. A response that fits stays kept.
func (b *Response) FlushError() error {
	b.WriteHeader(http.StatusOK) // unless there is a status
	if b.Accept != nil && b.status < 300 && b.written == 0 {
		b.Accept()
		b.streams = true
	}
	if err := b.cause(); err != nil || b.state == dropping || b.state == keeping && b.fits() {
		return err
	}
	return b.judge(b.onClient(func() error {
		if err := b.pass(); err != nil {
			return err
		}
		return http.NewResponseController(b.w).Flush()
	}))
}

// Hijack implements [http.Hijacker]. The connection is the handlers' own.
func (b *Response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if b.status != 0 {
		_ = b.judge(b.onClient(b.pass))
	}
	conn, rw, err := http.NewResponseController(b.w).Hijack()
	if err != nil {
		return nil, nil, err
	}
	b.state = passing
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conn = conn
	return conn, rw, nil
}

// judge decides what an error of writing means for the handlers.
func (b *Response) judge(err error) error {
	if err == nil || errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if cause := b.cause(); cause != nil {
		return cause
	}
	if b.Finish && !b.streams {
		b.state = dropping
		return nil
	}
	return err
}

// pass begins to send the response, unless it has begun. Its client ends a stream, and
// every response that is not to be finished without it.
func (b *Response) pass() error {
	if b.state != keeping {
		return nil
	}
	b.state = passing
	if b.streams || !b.Finish {
		context.AfterFunc(b.client, func() {
			b.Revoke(context.Canceled)
			b.Cancel(context.Canceled)
		})
	}
	return b.send()
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
		same := len(b.kept.head[name])
		switch {
		case same == 0 || same > len(values) || !slices.Equal(values[:same], b.kept.head[name]):
			header[name] = values
		case same < len(values): // what an outer handler has made of the others counts
			header[name] = append(header[name], values[same:]...)
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
	cause, begun := b.cause(), b.state == keeping && b.status != 0
	switch {
	case b.state == keeping && cause != nil:
		replace(b.w.Header(), b.kept.before)
		if b.uploads() && b.major == 1 {
			b.w.Header().Set("Connection", "close") // nobody knows where its next request begins
		}
		return caddyhttp.Error(http.StatusGatewayTimeout, cause)
	case err == http.ErrAbortHandler && begun: // the client sees the part
		_ = b.send()
		_ = http.NewResponseController(b.w).Flush()
		panic(err)
	case err == http.ErrAbortHandler, b.state == passing && cause != nil:
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

// cause is why the turn was taken back, or nil.
func (b *Response) cause() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.revoked
}

// onClient does what may block on the client, unless the turn was revoked.
func (b *Response) onClient(do func() error) error {
	if err := b.setSending(true); err != nil {
		return err
	}
	defer func() { _ = b.setSending(false) }()
	return do()
}

func (b *Response) setSending(is bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sending = is && b.revoked == nil
	return b.revoked
}

// Revoke ends the response because the turn was taken back, and what blocks on the client
// returns. Any goroutine may call it. When the handlers have returned, it does nothing.
//
// It uses net/http's own writer, since those of Caddy are not made for two goroutines. Those
// set other deadlines before each read and write, so it comes again until the handlers have
// returned. Over HTTP/2, a write deadline resets the stream even if nothing is written, so
// there is none while an answer can still be given. A read deadline ends the request's
// context once the body is here, and the error routes need that.
func (b *Response) Revoke(cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return
	}
	if b.revoked == nil {
		b.revoked, b.since = cause, time.Now()
	}
	past := time.Unix(1, 0)
	client := http.NewResponseController(innermost(b.w))
	switch {
	case b.conn != nil:
		_ = b.conn.SetDeadline(past)
	case b.sending:
		_ = client.SetWriteDeadline(past)
		b.cutConnectionLocked(past)
	}
	if b.conn == nil && b.uploads() {
		_ = client.SetReadDeadline(past)
	}
	time.AfterFunc(50*time.Millisecond, func() { b.Revoke(cause) })
}

type connKey struct{}

// KeepConnections lets the responses of a server know their connections.
func KeepConnections(s *caddyhttp.Server) {
	s.RegisterConnContext(func(ctx context.Context, conn net.Conn) context.Context {
		if ctx.Value(connKey{}) != nil { // another handler has registered, too
			return ctx
		}
		return context.WithValue(ctx, connKey{}, conn)
	})
}

// resetTime is how long the reset of an HTTP/2 stream may take.
const resetTime = time.Second

// cutConnectionLocked ends the connection of an HTTP/2 stream whose reset cannot be
// written, because the client reads nothing at all.
func (b *Response) cutConnectionLocked(deadline time.Time) {
	conn, ok := b.client.Value(connKey{}).(net.Conn)
	if ok && b.major == 2 && time.Since(b.since) > resetTime {
		_ = conn.SetWriteDeadline(deadline)
	}
}

func (b *Response) uploads() bool { return b.Uploading != nil && b.Uploading() }

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

// Interface guards
var (
	_ http.ResponseWriter = (*Response)(nil)
	_ http.Flusher        = (*Response)(nil)
	_ http.Hijacker       = (*Response)(nil)
)

// Package responsebuffer keeps a response until its request's turn is over, as nginx keeps what
// an upstream sends. So a client that reads slowly holds nobody up.
//
// Only the request's goroutine writes to the client, during the turn or after it.
package responsebuffer

import (
	"bufio"
	"cmp"
	"errors"
	"maps"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/orderly-http/caddy-orderly/modules/internal/requestbody"
	"github.com/orderly-http/caddy-orderly/modules/internal/turncontext"
)

// Buffer is the response writer of handlers that hold a turn. Init begins a response,
// Serve runs the handlers, and Deliver sends what was kept.
type Buffer struct {
	w       http.ResponseWriter // to the client
	turn    *turncontext.Context
	limit   int64
	major   int                 // of the version of HTTP
	upload  *requestbody.Upload // of the request
	state   state
	streams bool  // it is of a streaming kind
	status  int   // 0 before the handlers have given one
	length  int64 // that the handlers have announced, or -1
	written int64 // by them
	head    bool  // the request is a HEAD: no body follows
	kept    *kept
}

// state is what becomes of what the handlers write.
type state uint8

const (
	keeping  state = iota // the client has got nothing of the response, which can be replaced
	passing               // it is a stream, or too large to be kept, and has begun
	dropping              // the client has gone
)

// Init begins the response to a request that gets its turn. limit is how many bytes are
// kept, whatever the handlers flush. With 0, everything passes at once.
func (b *Buffer) Init(w http.ResponseWriter, r *http.Request, t *turncontext.Context, limit int64) {
	*b = Buffer{
		w: w, turn: t, limit: limit, major: r.ProtoMajor, upload: requestbody.UploadOf(r), length: -1, head: r.Method == http.MethodHead, kept: keep(w.Header()),
	}
	if b.upload.Uploading() {
		t.Interrupt(b.cutUpload)
	}
}

// Serve runs the handlers. If they panic with [http.ErrAbortHandler], it returns that.
func (b *Buffer) Serve(next caddyhttp.Handler, r *http.Request) (err error) {
	defer b.stopUpload()
	defer func() {
		if thrown := recover(); thrown == http.ErrAbortHandler {
			err = http.ErrAbortHandler
		} else if thrown != nil {
			panic(thrown)
		}
	}()
	return next.ServeHTTP(b, r)
}

// Header implements [http.ResponseWriter].
func (b *Buffer) Header() http.Header { return b.w.Header() }

// Unwrap is what [http.ResponseController] looks for.
func (b *Buffer) Unwrap() http.ResponseWriter { return b.w }

// WriteHeader implements [http.ResponseWriter]. Interim answers pass at once.
func (b *Buffer) WriteHeader(status int) {
	if b.status != 0 {
		return
	}
	if status < 200 && status != http.StatusSwitchingProtocols {
		b.writeInterim(status)
		return
	}
	header := b.w.Header()
	maps.Copy(b.kept.head, header)
	if announced := header.Get("Content-Length"); announced != "" {
		if length, err := strconv.ParseInt(announced, 10, 64); err == nil {
			b.length = length
		}
	}
	b.status, b.streams = status, isStream(header)
	if b.streams {
		_ = b.pass(nil)
	}
}

// writeInterim passes an interim answer on, such as 103 Early Hints. If the turn is taken back meanwhile,
// the client gets no other answer.
func (b *Buffer) writeInterim(status int) {
	if b.turn.Err() != nil {
		return
	}
	b.turn.Sends(true)
	defer b.turn.Sends(false)
	defer b.turn.Interrupt(b.cutWrites)()
	b.w.WriteHeader(status)
}

// fits reports whether the response is kept until the turn is over, as far as is known.
func (b *Buffer) fits() bool {
	return !b.streams && b.limit > 0 && max(b.length, b.written) <= b.limit
}

// unsent is how much of a body net/http keeps, in bytes, with the head and until the
// handlers flush. So much is kept even of a response that passes at once: the client has
// got nothing of it, and it can be replaced.
const unsent = 2 << 10

// Write implements [http.ResponseWriter].
func (b *Buffer) Write(p []byte) (int, error) {
	b.WriteHeader(http.StatusOK) // unless there is a status
	if b.turn.Err() != nil {
		return 0, b.turn.Err()
	}
	b.written += int64(len(p))
	switch {
	case b.length >= 0 && b.written > b.length:
		return 0, http.ErrContentLength // as net/http, which takes nothing of it
	case b.state == keeping && (b.fits() || b.written <= unsent):
		return b.kept.body.Write(p)
	}
	if err := b.pass(func() error { _, err := b.w.Write(p); return err }); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush implements [http.Flusher].
func (b *Buffer) Flush() { _ = b.FlushError() }

// FlushError is what [http.ResponseController] looks for. A response that fits stays kept.
func (b *Buffer) FlushError() error {
	b.WriteHeader(http.StatusOK) // unless there is a status
	if b.state == keeping && b.fits() {
		return nil
	}
	return b.pass(http.NewResponseController(b.w).Flush)
}

// Hijack implements [http.Hijacker]. The connection is the handlers' own.
func (b *Buffer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if b.status != 0 {
		_ = b.pass(nil)
	}
	conn, rw, err := http.NewResponseController(b.w).Hijack()
	if err != nil {
		return nil, nil, err
	}
	b.state = passing
	b.turn.Sends(true)
	b.turn.Interrupt(func() { _ = conn.SetDeadline(turncontext.Past) })
	return conn, rw, nil
}

// pass begins to send the response, unless it has begun, and then does more on the client,
// if there is more. It decides what an error means for the handlers.
func (b *Buffer) pass(more func() error) error {
	if b.state == dropping {
		return nil
	}
	err := b.turn.Err()
	if err == nil && b.state == keeping {
		b.state = passing
		b.turn.Sends(true)
		if b.streams {
			b.turn.EndWithClient()
		}
		b.turn.Interrupt(b.cutWrites)
		err = b.kept.send(b.w, b.status)
	}
	if err == nil && more != nil {
		err = more()
	}
	switch {
	case err == nil || errors.Is(err, http.ErrNotSupported):
		return err
	case b.turn.Err() != nil:
		return b.turn.Err()
	case b.turn.OutlivesClient:
		b.state = dropping
		return nil
	}
	return err
}

func (b *Buffer) cutWrites() { b.turn.CutWrites(b.w) }

// cutUpload ends reads of the body while the client may still send a part of it. Later, a
// read deadline ends the request's context, and the error routes need that.
func (b *Buffer) cutUpload() {
	if b.upload.Uploading() {
		b.turn.CutReads(b.w, b.major)
	}
}

// stopTime is how long a read of the body may take to end.
const stopTime = time.Second

// stopUpload ends the reads of the body when the context has ended before the handlers. A
// proxy's transport may go on with one. Over HTTP/1, net/http would end that after the
// answer, but without a deadline for what it reads then until the next request.
func (b *Buffer) stopUpload() {
	if b.turn.Err() == nil || !b.upload.Uploading() {
		return
	}
	for until := time.Now().Add(stopTime); time.Now().Before(until); time.Sleep(time.Millisecond) {
		b.cutUpload() // also if nobody reads: the error routes need its effect
		if b.upload.Stop() {
			return
		}
	}
}

// lingerTime is how long net/http reads on after a revoked upload was answered. A client
// that sends meanwhile would otherwise lose its answer by a reset of the connection.
const lingerTime = 2 * time.Second

// Deliver ends the response after the turn. err is what Serve returned; the caller has to
// return what Deliver returns.
//
// A response of which the client has got nothing can be replaced: by the error routes if the
// handlers failed, and by 504 if the turn was revoked. One that has begun can only be broken
// off, by a panic: the client must not take the part that it has for the whole.
func (b *Buffer) Deliver(err error) error {
	defer func() {
		b.kept.free()
		b.kept = nil
	}()
	begun := b.state == keeping && b.status != 0
	revoked := b.turn.Revoked()
	if err == http.ErrAbortHandler && !b.turn.Sent() {
		revoked = cmp.Or(revoked, b.turn.InnerRevoked()) // a part of an inner answer was kept here
	}
	switch {
	case revoked != nil && b.state == keeping:
		restore(b.w.Header(), b.kept.before)
		if b.major == 1 && (b.upload.Uploading() || b.turn.ReadsCut()) {
			requestbody.CloseAfterAnswer(b.w) // nobody knows where its next request begins
			turncontext.EndReads(b.w, time.Now().Add(lingerTime))
		}
		return caddyhttp.Error(http.StatusGatewayTimeout, revoked.Cause)
	case err == http.ErrAbortHandler, b.state == passing && b.turn.EndedEarly():
		if begun { // the client sees the part
			_ = b.kept.send(b.w, b.status)
			_ = http.NewResponseController(b.w).Flush()
		}
		if b.turn.ReadsCut() {
			turncontext.EndReads(b.w, turncontext.Past)
		}
		panic(http.ErrAbortHandler)
	case begun && err != nil:
		restore(b.w.Header(), b.kept.before)
	case begun:
		_ = b.kept.send(b.w, b.status) // if the client has gone, nobody needs to know
	}
	return err
}

// Answer is what is kept of a response.
type Answer struct {
	Status int
	Header http.Header // when the handlers gave the status; not to be changed
	Body   []byte      // until Deliver
	Whole  bool        // nothing of it has been sent
	Broken bool        // it has fewer bytes than the handlers announced
}

// Status is that of the response when Serve has returned.
func (b *Buffer) Status() int { return cmp.Or(b.status, http.StatusOK) }

// Answer returns what is kept of the response when Serve has returned.
func (b *Buffer) Answer() Answer {
	a := Answer{Status: b.Status(), Header: maps.Clone(b.kept.head), Body: b.kept.body.Bytes(), Whole: b.state == keeping && b.fits()}
	if b.status == 0 {
		a.Header = b.w.Header()
	}
	bodyless := b.head || b.status == http.StatusNoContent || b.status == http.StatusNotModified
	a.Broken = !bodyless && b.length >= 0 && b.written != b.length
	return a
}

// Interface guards
var (
	_ http.Flusher  = (*Buffer)(nil)
	_ http.Hijacker = (*Buffer)(nil)
)

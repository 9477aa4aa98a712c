// Package response writes the response of handlers that hold a turn of a queue. It takes
// the response off them before the client has read it, and can end it with the turn.
package response

import (
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/lentcontext"
)

// Writer writes the response of handlers that are inside. Init begins it, Serve runs the
// handlers, Conclude ends their part of it, and Deliver the rest.
//
// It begins late: what net/http would keep until the handlers have returned, it
// keeps itself. So the turn is handed over before a small response is written.
// And a response can be taken back until the client may have got some of it.
// What comes after that goes through a buffer, or to the client itself if the
// buffer has no size.
//
// It outlives the client: it writes for as long as there is one, and then
// swallows the rest. The handlers run to their end, as if somebody still
// listened: only then is the upstream really free.
//
// The handlers do not outlive the turn. Once it is revoked, they can write no
// more, and whatever blocks on the client is interrupted; see interrupt.
type Writer struct {
	caddyhttp.ResponseWriterWrapper // to the client
	turn                            context.Context
	ends                            bool // the request, with its client; then nothing outlives anything
	uploading                       bool // the client may still send of the body
	http1, http3                    bool
	answers                         bool // for a turn that was revoked before; see RevokeSoon

	status     int         // of the response; 0 before there is one
	headed     http.Header // the header as it was then
	header     http.Header // of the handlers, once the response has begun
	left       int64       // of the length that was announced; less than 0 if none was
	held       *piece      // the beginning, while the client has got nothing; or nil
	begun      bool        // the client may have got some of it
	buffer     buffer
	timeouts   writeTimeouts
	handlers   handlersContext
	lent       lentcontext.Context // of the request, while the handlers run
	gone       bool                // the client
	refused    bool                // something was not written, because the turn was revoked
	unanswered bool                // the response was left to the queue
	abandoned  bool                // what the client has not taken yet

	busy    atomic.Int32 // calls that may block on the client, in the handlers' goroutines
	revoked atomic.Bool

	mu       sync.Mutex // of what follows; it is never held during a write
	finished bool       // nothing is to be interrupted any more: the connection may be another's
	again    *time.Timer
	hijacked net.Conn
	cutRead  bool // the read deadline was set
	cutWrite bool // the write deadline was set

	interruptsSender bool // it, too, may block no more
}

// heldByServer is how much of a body net/http keeps until the handlers return or
// flush, in all versions of HTTP.
const heldByServer = 2 << 10

// Settings are what a response depends on.
type Settings struct {
	Turn           context.Context // of the handlers; a [Revocation] is its cause if it was revoked
	EndsWithClient bool            // the handlers need not run to their end without a client
	Uploading      bool            // the client may still send parts of the body
	BufferSize     int             // in bytes; 0 is no buffer
	Logger         *zap.Logger
}

// Init makes w write to the client of a request.
func (w *Writer) Init(to http.ResponseWriter, r *http.Request, s Settings) {
	w.ResponseWriter, w.turn = to, s.Turn
	w.ends, w.uploading = s.EndsWithClient, s.Uploading
	w.http1, w.http3 = r.ProtoMajor == 1, r.ProtoMajor == 3
	w.timeouts.http2, w.timeouts.logger = r.ProtoMajor == 2, s.Logger
	w.buffer.open(to, s.BufferSize, &w.timeouts)
}

// Serve lets handlers write the response. ctx is their context, which ends with the turn.
func (w *Writer) Serve(ctx context.Context, r *http.Request, next caddyhttp.Handler) error {
	if w.ends {
		defer context.AfterFunc(r.Context(), w.hangUp)()
	}
	w.handlers = handlersContext{ctx, w}
	return w.lent.Serve(&w.handlers, w, r, next)
}

// Header implements [http.ResponseWriter]. While the sender writes, the handlers have a
// header of their own, for trailers. Writers around the queue, and that of HTTP/3, use
// the other one then. A handler that sets trailers has to ask for the header again once
// it has written.
func (w *Writer) Header() http.Header {
	if w.header != nil {
		return w.header
	}
	return w.ResponseWriter.Header()
}

// WriteHeader implements [http.ResponseWriter]. A handler that was cancelled
// takes it that its client is gone, and reverse_proxy says so. Where it was the
// queue that ended the turn, the client is there and gets the queue's answer.
func (w *Writer) WriteHeader(status int) {
	if status == StatusClientClosed && IsRevocation(context.Cause(w.turn)) {
		w.unanswered = w.status == 0
		return
	}
	if status >= 100 && status < 200 && status != http.StatusSwitchingProtocols {
		w.writeInformation(status)
		return
	}
	if !w.mayWrite() || w.status != 0 {
		return
	}
	if status < 100 || status > 999 {
		panic("serialize: invalid status of a response: " + strconv.Itoa(status))
	}
	w.status, w.left, w.headed = status, -1, maps.Clone(w.ResponseWriter.Header())
	if length, err := strconv.ParseUint(w.headed.Get("Content-Length"), 10, 63); err == nil {
		w.left = int64(length)
	}
}

// writeInformation writes a header that comes before the response.
func (w *Writer) writeInformation(status int) {
	if w.status == 0 && !w.isRevoked() {
		_ = w.onClient(func() error { w.ResponseWriter.WriteHeader(status); return nil })
	}
}

// writeHeader begins a response, if no handler has.
func (w *Writer) writeHeader() {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
}

// mayWrite reports whether the turn still allows to write the response.
func (w *Writer) mayWrite() bool {
	if !w.isRevoked() {
		return true
	}
	if w.status != 0 {
		w.refused = true
	} else {
		w.unanswered = true
	}
	return false
}

// isRevoked reports whether the turn has been revoked. The handlers may know of it,
// by their context, before the writer does.
func (w *Writer) isRevoked() bool {
	return w.revoked.Load() || !w.answers && w.turn.Err() != nil && IsRevocation(context.Cause(w.turn))
}

// Write implements [http.ResponseWriter].
func (w *Writer) Write(p []byte) (int, error) {
	if !w.mayWrite() {
		return 0, context.Cause(w.turn)
	}
	w.writeHeader()
	switch {
	case len(p) == 0:
		return 0, nil
	case !w.allowsBody():
		return 0, http.ErrBodyNotAllowed
	case w.left >= 0 && int64(len(p)) > w.left:
		w.left = 0 // net/http takes no more after that
		return 0, http.ErrContentLength
	}
	w.count(int64(len(p)))
	w.sniff(p)
	if w.gone || w.hold(p) {
		return len(p), nil
	}
	w.begin()
	n, err := w.pass(p)
	if w.outlives(err) {
		return len(p), nil
	}
	return n, w.explain(err)
}

func (w *Writer) allowsBody() bool {
	return w.status >= 200 && w.status != http.StatusNoContent && w.status != http.StatusNotModified
}

// count records how much of the announced length has been written.
func (w *Writer) count(written int64) {
	if w.left >= 0 {
		w.left = max(0, w.left-written)
	}
}

// hold keeps p, where net/http would.
func (w *Writer) hold(p []byte) bool {
	if w.begun || len(p) > heldByServer {
		return false
	}
	if w.held == nil {
		w.held = newPiece()
	}
	if w.held.length+len(p) > heldByServer {
		return false
	}
	w.held.append(p)
	return true
}

// begin lets what was held go to the client.
func (w *Writer) begin() {
	if w.begun {
		return
	}
	w.begun = true
	if w.header = w.restoreHeader(); w.header == nil {
		w.header = make(http.Header)
	}
	w.ResponseWriter.WriteHeader(w.status)
	held := w.held
	w.held = nil
	switch {
	case held == nil:
	case w.isBuffered():
		w.followTimeouts()
		w.buffer.addPiece(held)
	default:
		_, err := w.pass(held.bytes())
		w.outlives(err)
		held.free()
	}
}

func (w *Writer) isBuffered() bool { return w.buffer.size > 0 }

// followTimeouts lets the buffer know what the handlers have set.
func (w *Writer) followTimeouts() {
	if settings, ok := w.timeouts.current(); ok {
		w.buffer.setLimits(settings)
	}
}

// pass gives p to the client, except for what the buffer takes.
func (w *Writer) pass(p []byte) (n int, err error) {
	if direct := len(p) - w.buffer.size; direct > 0 {
		err = w.passBy(func(to http.ResponseWriter) error {
			n, err = to.Write(p[:direct])
			return err
		})
		if err != nil || !w.isBuffered() {
			return n, err
		}
	}
	w.followTimeouts()
	added, err := w.buffer.add(p[n:])
	return n + added, err
}

// passBy lets the handlers write to the client themselves, once that has taken what
// the buffer has.
func (w *Writer) passBy(write func(to http.ResponseWriter) error) error {
	w.followTimeouts()
	to, err := w.buffer.awaitSent()
	if err != nil {
		return err
	}
	return w.onClient(func() error { return write(to) })
}

// Interface guards
var (
	_ http.ResponseWriter = (*Writer)(nil)
	_ http.Flusher        = (*Writer)(nil)
	_ http.Hijacker       = (*Writer)(nil)
	_ io.ReaderFrom       = (*Writer)(nil)
)

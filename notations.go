package orderly

import (
	"context"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// traceparentField is the request header field of W3C Trace Context, as net/http
// writes it.
const traceparentField = "Traceparent"

// notations are one ID of a request as a txid, a UUIDv7 and a trace context. Each
// is made when it is first asked for, from those that are there already.
type notations struct {
	txid     uniqueid.TXID
	uuid     uniqueid.UUIDv7
	hasTXID  bool
	hasUUID  bool
	received uniqueid.TraceContext // from a trusted proxy; zero if there is none
	traced   uniqueid.TraceContext // of Caddy's tracing; zero while it has not begun
	own      uniqueid.TraceContext // as it goes to the upstream; zero until asked for
}

// TXID is the ID as a txid: that of the trace if another program made the trace
// and it has one, otherwise a fresh one.
func (n *notations) TXID() uniqueid.TXID {
	if n.hasTXID {
		return n.txid
	}
	n.hasTXID = true
	n.followTrace()
	if n.hasUUID {
		if txid, ok := n.uuid.TXID(); ok {
			n.txid = txid
			return n.txid
		}
	}
	n.txid = uniqueid.NewTXID()
	return n.txid
}

// UUID is the ID as a UUIDv7: the txid and 20 random bits more.
func (n *notations) UUID() uniqueid.UUIDv7 {
	if !n.hasUUID {
		txid := n.TXID()
		if !n.hasUUID { // otherwise the txid came from it
			n.uuid, n.hasUUID = txid.UUIDv7(rand.Uint32()), true
		}
	}
	return n.uuid
}

// Trace is the trace that the request belongs to, with what the upstream is to
// take for its parent: Caddy's own span if there is one, otherwise one that
// stands for this request.
func (n *notations) Trace() uniqueid.TraceContext {
	if n.traced != (uniqueid.TraceContext{}) {
		return n.traced
	}
	if n.own == (uniqueid.TraceContext{}) {
		n.own = n.newTrace()
	}
	return n.own
}

func (n *notations) newTrace() uniqueid.TraceContext {
	if n.received != (uniqueid.TraceContext{}) {
		return n.received.Child()
	}
	return uniqueid.NewTraceContext(n.UUID())
}

// look finds out whether Caddy's tracing has begun a trace. The handler leaves
// the IDs of trace and span in variables, and the rest in the request's header
// unless it is set up to write another one than traceparent. Only the goroutine
// that serves the request may look.
func (n *notations) look(ctx context.Context, header http.Header) {
	if n.traced != (uniqueid.TraceContext{}) {
		return
	}
	trace, _ := caddyhttp.GetVar(ctx, "trace_id").(string)
	span, _ := caddyhttp.GetVar(ctx, "span_id").(string)
	if trace == "" || span == "" {
		return
	}
	// Without the field there is no telling whether the trace is sampled. No flags
	// say that it may not be.
	traced, err := uniqueid.ParseTraceContext("00-" + trace + "-" + span + "-00")
	if err != nil {
		return
	}
	sent, err := uniqueid.ParseTraceContext(header.Get(traceparentField))
	if err == nil && sent.TraceID() == traced.TraceID() && sent.ParentID() == traced.ParentID() {
		traced = sent
	}
	n.traced = traced
}

// likelyAge is how far the time in a trace ID may be from now for the ID to be
// taken for a UUIDv7. One in 64 random trace IDs looks like one, of any time
// from 1970 to 10889.
const likelyAge = 24 * time.Hour

// followTrace takes over the ID of a trace that another program made, if it is a
// UUIDv7.
func (n *notations) followTrace() {
	trace := n.received
	if n.traced != (uniqueid.TraceContext{}) {
		trace = n.traced
	}
	uuid, ok := trace.TraceID().UUIDv7()
	if ok && !n.hasUUID && time.Since(uuid.Time()).Abs() < likelyAge {
		n.uuid, n.hasUUID = uuid, true
	}
}

// adoptText takes over what a trusted proxy calls the request, if it is a txid or
// a UUIDv7.
func (n *notations) adoptText(text string) {
	if txid, err := uniqueid.ParseTXID(text); err == nil {
		n.txid, n.hasTXID = txid, true
	}
	if uuid, err := uniqueid.ParseUUIDv7(text); err == nil {
		n.uuid, n.hasUUID = uuid, true
	}
}

// adoptTraceparent takes over the trace of a trusted proxy, if it is one.
func (n *notations) adoptTraceparent(text string) bool {
	received, err := uniqueid.ReceiveTraceparent(text)
	n.received = received
	return err == nil
}

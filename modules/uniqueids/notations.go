package uniqueids

import (
	"context"
	"math/rand/v2"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// traceparentField is the request header field of W3C Trace Context, as net/http
// writes it.
const traceparentField = "Traceparent"

// notations are one ID of a request as a txid, a UUIDv7 and a trace context. Each is made
// on first use, from those that already exist, and then stays the same.
//
// A trace that somebody else began is not the request's ID, because other requests belong
// to it, too. With Caddy's tracing, an untrusted caller may have chosen it. So it only
// determines the trace context.
type notations struct {
	txid     uniqueid.TXID
	uuid     uniqueid.UUIDv7
	hasTXID  bool
	hasUUID  bool
	adopted  bool                  // whether a trusted proxy made the ID
	received uniqueid.TraceContext // from a trusted proxy; zero if there is none
	traced   uniqueid.TraceContext // of Caddy's tracing; zero until it has begun
	trace    uniqueid.TraceContext // the result of Trace; zero until its first call
}

// TXID returns the ID as a txid: that of the UUIDv7 if there is one, otherwise a new one.
func (n *notations) TXID() uniqueid.TXID {
	if n.hasTXID {
		return n.txid
	}
	n.hasTXID = true
	if n.hasUUID {
		if txid, ok := n.uuid.TXID(); ok {
			n.txid = txid
			return n.txid
		}
	}
	n.txid = uniqueid.NewTXID()
	return n.txid
}

// UUID returns the ID as a UUIDv7: the txid and 20 more random bits.
func (n *notations) UUID() uniqueid.UUIDv7 {
	if !n.hasUUID {
		n.uuid, n.hasUUID = n.TXID().UUIDv7(rand.Uint32()), true
	}
	return n.uuid
}

// Trace returns the trace that the request belongs to, with the parent ID for the
// upstream. That is Caddy's own span if there was one on first use, otherwise a new one
// for this request.
func (n *notations) Trace() uniqueid.TraceContext {
	if n.trace == (uniqueid.TraceContext{}) {
		n.trace = n.newTrace()
	}
	return n.trace
}

func (n *notations) newTrace() uniqueid.TraceContext {
	switch {
	case n.traced != (uniqueid.TraceContext{}):
		return n.traced
	case n.received != (uniqueid.TraceContext{}):
		return n.received.Child()
	case n.adopted: // its bits may not be random
		return uniqueid.NewTraceContext(n.UUID()).WithFlags(uniqueid.TraceSampled)
	}
	return uniqueid.NewTraceContext(n.UUID())
}

// follow checks whether Caddy's tracing has begun a trace. That handler puts the IDs of
// the trace and the span into variables. It puts the rest into the request's header,
// unless it is configured to write a field other than traceparent. Only the goroutine
// that serves the request may call follow.
func (n *notations) follow(ctx context.Context, header http.Header) {
	if n.traced != (uniqueid.TraceContext{}) {
		return
	}
	trace, _ := caddyhttp.GetVar(ctx, "trace_id").(string)
	span, _ := caddyhttp.GetVar(ctx, "span_id").(string)
	if trace == "" || span == "" {
		return
	}
	// Without the field, nobody can tell whether the trace is sampled. No flags mean that
	// it may not be.
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

// adoptText adopts a trusted proxy's ID of the request, if it is a txid or a UUIDv7.
func (n *notations) adoptText(text string) {
	if txid, err := uniqueid.ParseTXID(text); err == nil {
		n.txid, n.hasTXID, n.adopted = txid, true, true
	}
	if uuid, err := uniqueid.ParseUUIDv7(text); err == nil {
		n.uuid, n.hasUUID, n.adopted = uuid, true, true
	}
}

// adoptTraceparent adopts the trace of a trusted proxy. It returns false if text is not
// one.
func (n *notations) adoptTraceparent(text string) bool {
	received, err := uniqueid.ReceiveTraceparent(text)
	n.received = received
	return err == nil
}

// wrote reports whether text is a notation of the ID or of its trace that was used, or
// the field that Caddy's tracing has written.
func (n *notations) wrote(text string) bool {
	var none uniqueid.TraceContext
	return n.hasUUID && text == n.uuid.String() ||
		n.trace != none && (text == n.trace.String() || text == n.trace.TraceID().String()) ||
		n.traced != none && text == n.traced.String()
}

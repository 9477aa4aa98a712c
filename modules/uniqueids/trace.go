package uniqueids

import (
	"context"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// The request header fields of W3C Trace Context, as net/http writes them.
const (
	traceparentField = "Traceparent"
	tracestateField  = "Tracestate"
)

// trace is what is known of the trace that a request belongs to.
//
// A trace that somebody else began is not the request's ID, because other requests belong
// to it, too. With Caddy's tracing, an untrusted caller may have chosen it. So it only
// determines the trace context.
type trace struct {
	adopted  bool                  // whether a trusted proxy made the request's ID
	received uniqueid.TraceContext // from a trusted proxy; zero if there is none
	used     uniqueid.TraceContext // what placeholders show; zero until first use
}

// Trace returns the trace context for the upstream. It is that of Caddy's own span, if
// there is one, and otherwise a new one for the request. Once used, it stays the same.
func (ids *requestIDs) Trace() uniqueid.TraceContext {
	t, span := &ids.trace, spanOf(ids.ctx, ids.header)
	switch {
	case !t.used.IsZero():
	case !span.IsZero():
		t.used = span
	case !t.received.IsZero():
		t.used = t.received.Child()
	default:
		t.used = uniqueid.NewTraceContext(ids.UUIDv7())
		if t.adopted { // its bits may not be random
			t.used = t.used.WithFlags(uniqueid.TraceSampled)
		}
	}
	return t.used
}

// dropOldState removes the state of the caller's trace, unless the request belongs to that
// trace. It must be called before the next handler: a proxy copies the header before it asks
// for the new trace.
func (ids *requestIDs) dropOldState(header http.Header) {
	if ids.trace.received.IsZero() && spanOf(ids.ctx, header).IsZero() {
		header.Del(tracestateField)
	}
}

// spanOf returns the trace context of Caddy's own span, zero if tracing has not begun. That
// handler puts the IDs of the trace and the span into variables. It puts the rest into the
// request's header, unless it is configured to write a field other than traceparent.
func spanOf(ctx context.Context, header http.Header) uniqueid.TraceContext {
	id, _ := caddyhttp.GetVar(ctx, "trace_id").(string)
	span, _ := caddyhttp.GetVar(ctx, "span_id").(string)
	sent := header.Get(traceparentField)
	if strings.HasPrefix(sent, "00-"+id+"-"+span+"-") {
		if c, err := uniqueid.ParseTraceContext(sent); err == nil {
			return c
		}
	}
	// Without the field, nobody can tell whether the trace is sampled. No flags mean that
	// it may not be.
	c, _ := uniqueid.ParseTraceContext("00-" + id + "-" + span + "-00") // zero if they are empty
	return c
}

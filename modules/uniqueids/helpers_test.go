package uniqueids

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/tracing"

	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// loaded is a handler with a configuration in JSON, until the end of the test.
func loaded(t *testing.T, name, config string) caddyhttp.MiddlewareHandler {
	t.Helper()
	whole, err := caddy.ProvisionContext(new(caddy.Config))
	must(t, err)
	ctx, cancel := caddy.NewContext(whole)
	t.Cleanup(cancel)
	module, err := ctx.LoadModuleByID("http.handlers."+name, json.RawMessage(config))
	must(t, err)
	return module.(caddyhttp.MiddlewareHandler)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// request is one that comes to handlers.
type request struct {
	trusted bool // the peer is one of the server's trusted_proxies
	header  http.Header
}

// through sends the request through handlers, and returns what a text becomes behind them.
func (q request) through(t *testing.T, text string, handlers ...caddyhttp.MiddlewareHandler) (answer string) {
	t.Helper()
	repl, w, r := caddy.NewReplacer(), httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	if r.Header = q.header.Clone(); r.Header == nil {
		r.Header = make(http.Header)
	}
	r = caddyhttp.PrepareRequest(r, repl, w, new(caddyhttp.Server))
	caddyhttp.SetVar(r.Context(), caddyhttp.TrustedProxyVarKey, q.trusted)
	next := caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error {
		answer = repl.ReplaceAll(text, "")
		return nil
	})
	for _, handler := range slices.Backward(handlers) {
		inner := next
		next = func(w http.ResponseWriter, r *http.Request) error { return handler.ServeHTTP(w, r, inner) }
	}
	must(t, next(w, r))
	return answer
}

// told are the notations of a request's ID, and the fields and variables of its trace.
type told struct{ txid, uuid, trace, traceparent, header, state, spanTrace, span string }

const tellNotations = "{http.request.txid}|{http.request.uuid_v7}|{http.request.trace_id}|{http.request.traceparent}"

func (q request) notations(t *testing.T, handlers ...caddyhttp.MiddlewareHandler) told {
	t.Helper()
	words := strings.Split(q.through(t, tellNotations+
		"|{http.request.header.Traceparent}|{http.request.header.Tracestate}|{http.vars.trace_id}|{http.vars.span_id}", handlers...), "|")
	return told{words[0], words[1], words[2], words[3], words[4], words[5], words[6], words[7]}
}

// wantOneID fails the test unless the notations are of one ID, and returns it.
func (n told) wantOneID(t *testing.T) uniqueid.UUIDv7 {
	t.Helper()
	uuid, err := uniqueid.ParseUUIDv7(n.uuid)
	must(t, err)
	if txid, ok := uuid.TXID(); !ok || txid.String() != n.txid || uuid.TraceID().String() != n.trace {
		t.Errorf("the notations are not of one ID: %+v", n)
	}
	return uuid
}

// wantOwnID fails the test unless txid and UUID are one ID that is not of the
// trace.
func (n told) wantOwnID(t *testing.T) {
	t.Helper()
	uuid, err := uniqueid.ParseUUIDv7(n.uuid)
	if txid, ok := uuid.TXID(); err != nil || !ok || txid.String() != n.txid || uuid.TraceID().String() == n.trace {
		t.Errorf("UUID and txid are not one ID, or that of the trace: %+v, %v", n, err)
	}
}

// wantTraceparent returns the ID of the parent.
func (n told) wantTraceparent(t *testing.T, trace, flags string) (parent string) {
	t.Helper()
	parts := strings.Split(n.traceparent, "-")
	if len(parts) != 4 || parts[0] != "00" || parts[1] != trace || len(parts[2]) != 16 || strings.Trim(parts[2], "0") == "" || parts[3] != flags {
		t.Fatalf("traceparent is %q; expected trace %s, flags %s", n.traceparent, trace, flags)
	}
	return parts[2]
}

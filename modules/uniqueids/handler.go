// Package uniqueids implements the handler unique_ids, which gives requests their IDs,
// and the command ids, which makes and decodes them.
package uniqueids

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/internal/requestid"
	"github.com/orderly-http/caddy-orderly/internal/throttle"
	"github.com/orderly-http/caddy-orderly/modules/internal/finalanswer"
)

func init() { caddy.RegisterModule(new(Handler)) }

// Handler gives each request IDs that no other request has. An ID is generated on
// first use, once per request, and then stays the same: through rewrites, error
// routes, the access log and the upstream. A request that uses none pays for none.
//
// Placeholder | Description
// ------------|---------------
// `{http.request.txid}` | 96 bits, 20 characters of lower-case base32hex; sorts by time (nginx's ngx_txid)
// `{unique_id}` | 112 bits, 19 characters of `[A-Za-z0-9@-]` (Apache's mod_unique_id), or another `layout`
// `{http.request.sharded_id}` | shard number, 4 random hex digits, 13 hex digits of time
// `{http.request.call_number}` | 47 bits, 8 characters of base62, never twice; from run numbers in Caddy's storage
// `{http.request.uuid_v7}` | the txid as a UUIDv7 (RFC 9562): same millisecond, same 54 random bits, 20 more
// `{http.request.trace_id}` | the 128 bits of the UUIDv7 as 32 hex digits, for W3C Trace Context
// `{http.request.traceparent}` | `00-<trace_id>-<16 hex digits, new for this request>-<flags>`; the flags are `03`, sampled and random, or `01` if the ID was adopted
//
// If Caddy's `tracing` is on, trace_id and traceparent are those of its span. The txid and
// the UUIDv7 remain the request's own, since other requests belong to the same trace.
//
// If a request passes several unique_ids handlers, the first one names it. The others
// put its IDs into their `headers`, and remove what their `trust` does not trust.
//
// The access log has the txid in its field `txid`, and the error log as `err_id`. If
// Caddy's storage fails, `{http.request.call_number}` is empty and the log says why.
type Handler struct {
	// The layout of `{unique_id}`: `classic`, `threaded` or `modern`, with 19, 24
	// or 27 characters. Default: `classic`.
	Layout string `json:"layout,omitempty"`

	// The value that distinguishes this machine from others in the layouts classic and
	// threaded: an IPv4 address, `random`, or `auto`. With `auto`, it is the address
	// that the host's name resolves to, or random bits if that cannot distinguish
	// machines. Default: `auto`.
	Node string `json:"node,omitempty"`

	// The number of shards of `{http.request.sharded_id}`, 1 to 1,000,000. 0 means
	// the default. Default: 1.
	Shards int `json:"shards,omitempty"`

	// The name of a request header that carries the caller's ID. If the peer is a trusted
	// proxy of the server, a value of 1 to 128 characters of `[A-Za-z0-9._@:=+/-]` becomes
	// `{http.request.txid}`. Any other value is removed from the request, and the log says
	// why, once a minute at most. With `traceparent`, the trace ID and the flags of W3C
	// Trace Context are adopted; the txid and the UUIDv7 stay the request's own. The
	// `tracestate` of a trace that is not adopted is removed. Default: none.
	Trust string `json:"trust,omitempty"`

	// The header fields of the request and of its response that get an ID. What the client
	// or another handler has set there is replaced, except an ID that was adopted from the
	// same field. Default: none.
	Headers []Header `json:"headers,omitempty"`

	logger        *zap.Logger
	dropped       throttle.Throttle[bool] // log entries, by whether the peer is trusted
	byPlaceholder map[string]newID
	storage       certmagic.Storage // of its call numbers
	storageKey    string            // by which they are in the pool; "" until it has them
}

// CaddyModule returns the Caddy module information.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.unique_ids", New: func() caddy.Module { return new(Handler) }}
}

const (
	nodeAuto   = "auto"
	nodeRandom = "random"
)

// Provision checks the settings and opens the generators.
func (u *Handler) Provision(ctx caddy.Context) error {
	u.logger, u.dropped.Interval = ctx.Logger(), time.Minute
	err := settings.FillIn(u)
	u.Trust = http.CanonicalHeaderKey(u.Trust)
	for i := range u.Headers {
		err = errors.Join(err, u.Headers[i].provision())
	}
	if err == nil {
		err = u.openGenerators(ctx)
	}
	if err != nil {
		return fmt.Errorf("unique_ids: %w", err)
	}
	return nil
}

// Cleanup releases the generators.
func (u *Handler) Cleanup() error {
	if u.storageKey == "" {
		return nil
	}
	_, err := callNumberPool.Delete(u.storageKey)
	return err
}

// ServeHTTP makes the IDs available to all later handlers.
func (u *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	ctx := r.Context()
	vars := ctx.Value(caddyhttp.VarsCtxKey).(map[string]any)
	ids, again := requestid.Of(vars).(*requestIDs)
	if !again {
		ids = &requestIDs{handler: u, ctx: ctx, header: r.Header}
		requestid.Set(vars, ids)
		ctx.Value(caddy.ReplacerCtxKey).(*caddy.Replacer).Map(ids.replace)
		ids.log()
	}
	ids.adopt(r, u)
	if len(u.Headers) == 0 {
		return ids.name(next.ServeHTTP(w, r))
	}
	u.setRequest(ids, r)
	return ids.name(finalanswer.Serve(w, r, next, func(header http.Header) { u.setResponse(ids, header) }))
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)

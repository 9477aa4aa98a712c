// Package uniqueids is the handler unique_ids, which gives requests their IDs, and
// the command ids, which makes and reads them.
package uniqueids

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/uniqueid"
)

func init() { caddy.RegisterModule(Handler{}) }

// Handler gives each request IDs that no other request has. An ID is made
// when it is first asked for, once in a request, and then stays the same:
// through rewrites, error routes, the access log and the upstream. A request
// that asks for none pays for none.
//
// Placeholder | Description
// ------------|---------------
// `{http.request.txid}` | 96 bits, 20 characters of lower-case base32hex; sorts by time (nginx's ngx_txid)
// `{unique_id}` | 112 bits, 19 characters of `[A-Za-z0-9@-]` (Apache's mod_unique_id), or another `layout`
// `{http.request.sharded_id}` | shard number, 4 random hex digits, 13 hex digits of time
// `{http.request.call_number}` | 47 bits, 8 characters of base62, never twice; from run numbers in Caddy's storage
// `{http.request.uuid_v7}` | the txid as a UUIDv7 (RFC 9562): same millisecond, same 54 random bits, 20 more
// `{http.request.trace_id}` | the 128 bits of the UUIDv7 as 32 hex digits, for W3C Trace Context
// `{http.request.traceparent}` | `00-<trace_id>-<16 hex digits, new for this request>-<flags>`, with the flags sampled and random
//
// If Caddy's `tracing` is on, its trace wins: trace_id and traceparent are those
// of its span. The txid and the UUIDv7 are then an ID of their own, for other
// requests belong to the same trace; the access log joins them. Once asked for,
// trace_id and traceparent stay as they are, also if tracing begins later.
//
// Of several unique_ids on the way of a request, the first names it. The others
// only take out of the request what their `trust` does not trust.
//
// With access logs on, the entry has the field `txid`. An error that passes by
// gets the txid as its ID, so that the error log's `err_id` and the access log
// join.
//
// Where Caddy's storage fails, `{http.request.call_number}` is empty and the
// log says why.
type Handler struct {
	// The layout of `{unique_id}`: `classic`, `threaded` or
	// `modern`, which have 19, 24 and 27 characters. Default: `classic`.
	Layout string `json:"layout,omitempty"`

	// What tells this machine from others in the layouts classic and
	// threaded: an IPv4 address, `random`, or `auto`. That is the address
	// which the host's name resolves to, or random bits where this cannot tell
	// machines apart. Default: `auto`.
	Node string `json:"node,omitempty"`

	// The number of shards of `{http.request.sharded_id}`, 1 or
	// more. Default: 1.
	Shards int `json:"shards,omitempty"`

	// The name of a request header field that carries the caller's ID. If the
	// peer is a trusted proxy of the server, a value of 1 to 128 characters of
	// `[A-Za-z0-9._@-]` becomes `{http.request.txid}`; anything else is taken
	// out of the request. With `traceparent`, the trace ID and the flags of W3C
	// Trace Context are adopted; the txid and the UUIDv7 are this request's own.
	// Default: none.
	Trust string `json:"trust,omitempty"`

	makers *generators
	logger *zap.Logger
}

// CaddyModule returns the Caddy module information.
func (Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.unique_ids",
		New: func() caddy.Module { return new(Handler) },
	}
}

const (
	nodeAuto   = "auto"
	nodeRandom = "random"
)

// Provision checks the settings and takes hold of the generators.
func (u *Handler) Provision(ctx caddy.Context) error {
	u.logger = ctx.Logger()
	if u.Layout == "" {
		u.Layout = uniqueid.Classic.String()
	}
	if u.Node == "" {
		u.Node = nodeAuto
	}
	if u.Shards == 0 {
		u.Shards = 1
	}
	u.Trust = http.CanonicalHeaderKey(u.Trust)
	if err := u.Validate(); err != nil {
		return err
	}
	var err error
	if u.makers, err = openGenerators(ctx, u); err != nil {
		return fmt.Errorf("unique_ids: %w", err)
	}
	return nil
}

// Validate implements [caddy.Validator]. Provision calls it before it opens
// anything.
func (u *Handler) Validate() error {
	if err := u.check(); err != nil {
		return fmt.Errorf("unique_ids: %w", err)
	}
	return nil
}

func (u *Handler) check() error {
	return errors.Join(checkLayout(u.Layout), checkNode(u.Node), checkShards(u.Shards), checkTrust(u.Trust))
}

// Cleanup gives the generators back.
func (u *Handler) Cleanup() error {
	if u.makers == nil {
		return nil
	}
	return u.makers.close()
}

// RequestIDs are the IDs of one request, as far as they were asked for. A
// request is served by one goroutine at a time; only its txid is also asked for
// by others, who list the queues.
type RequestIDs struct {
	handler *Handler
	ctx     context.Context // of the request: the IDs live as long as it does

	header http.Header // of the request

	mu        sync.Mutex // guards the next two once the request is in a queue
	notations notations
	txid      string // as it is written: the caller's may be any text

	uniqueID, shardedID string

	callNumber      string
	callNumberAsked bool
}

const idsVar = "orderly.ids"

// ServeHTTP makes the IDs available to all that comes later.
func (u *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	ctx := r.Context()
	ids, again := caddyhttp.GetVar(ctx, idsVar).(*RequestIDs)
	if !again {
		ids = &RequestIDs{handler: u, ctx: ctx, header: r.Header}
		caddyhttp.SetVar(ctx, idsVar, ids)
		ctx.Value(caddy.ReplacerCtxKey).(*caddy.Replacer).Map(ids.replace)
		ids.log()
		ids.adopt(r)
	} else {
		ids.pass(r, u)
	}
	err := next.ServeHTTP(w, r)
	if err == nil {
		return nil
	}
	return ids.name(err)
}

// log adds the txid to the access log, if there is one. The log renders it, and
// so makes it, when the request is over.
func (ids *RequestIDs) log() {
	server, ok := ids.ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if !ok || server.Logs == nil {
		return
	}
	if fields, ok := ids.ctx.Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields); ok {
		fields.Set(zap.Stringer("txid", ids))
	}
}

// adopt takes over the caller's ID where the caller is trusted. An ID that is
// not taken over is nobody's, so what is behind does not get to see it.
func (ids *RequestIDs) adopt(r *http.Request) {
	header := ids.handler.Trust
	values, ok := r.Header[header]
	if ok && (!ids.trusted() || len(values) != 1 || !ids.adoptValue(header, values[0])) {
		r.Header.Del(header)
	}
}

// trusted reports whether the peer is one of the server's trusted proxies.
func (ids *RequestIDs) trusted() bool {
	trusted, _ := caddyhttp.GetVar(ids.ctx, caddyhttp.TrustedProxyVarKey).(bool)
	return trusted
}

// pass lets a request with IDs through a second handler. What that is to trust
// and cannot, it takes out of the request, as the first does.
func (ids *RequestIDs) pass(r *http.Request, second *Handler) {
	if second != ids.handler {
		second.warnOfFirst(ids.handler)
	}
	header := second.Trust
	values, ok := r.Header[header]
	if ok && (len(values) != 1 || !ids.isOwn(values[0]) && !(ids.trusted() && isID(header, values[0]))) {
		r.Header.Del(header)
	}
}

// warnOfFirst says, once, that a handler has no say in requests that another has
// named, if it would have named them otherwise.
func (u *Handler) warnOfFirst(first *Handler) {
	if u.Layout == first.Layout && u.Node == first.Node && u.Shards == first.Shards && u.Trust == first.Trust {
		return
	}
	u.makers.warnOfFirst.Do(func() {
		u.logger.Warn("this unique_ids has no effect on the IDs of a request: another unique_ids before it has named the request",
			zap.Any("settings", u), zap.Any("settings_of_first", first))
	})
}

// isID reports whether the value of a trusted header field can be adopted.
func isID(header, value string) bool {
	if header != traceparentField {
		return isCallersID(value)
	}
	_, err := uniqueid.ReceiveTraceparent(value)
	return err == nil
}

// isOwn reports whether text is one of the request's IDs, put into the header on
// the way.
func (ids *RequestIDs) isOwn(text string) bool {
	ids.FollowTrace()
	ids.mu.Lock()
	defer ids.mu.Unlock()
	return text != "" && (text == ids.txid || text == ids.uniqueID || text == ids.shardedID || text == ids.callNumber ||
		ids.notations.wrote(text))
}

// adoptValue takes over the value of the trusted header field, if it is an ID.
func (ids *RequestIDs) adoptValue(header, value string) bool {
	if header == traceparentField {
		return ids.notations.adoptTraceparent(value)
	}
	if !isCallersID(value) {
		return false
	}
	ids.txid = value
	ids.notations.adoptText(value)
	return true
}

// maxCallersID is how long an ID from a trusted proxy may be, in characters.
const maxCallersID = 128

func isCallersID(text string) bool {
	const signs = "._@-"
	for _, c := range []byte(text) {
		alphanumeric := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alphanumeric && strings.IndexByte(signs, c) < 0 {
			return false
		}
	}
	return len(text) >= 1 && len(text) <= maxCallersID
}

// TXID returns the txid of a request, for a log line; nothing where
// unique_ids does not name requests. Only the goroutine that serves the request
// may ask, for it looks into the request's variables.
func TXID(ctx context.Context) string {
	vars, _ := ctx.Value(caddyhttp.VarsCtxKey).(map[string]any)
	if ids := Of(vars); ids != nil {
		return ids.TXID()
	}
	return ""
}

// Of returns the IDs of the request with these variables; see
// [caddyhttp.VarsCtxKey]. It is nil where no handler of this package has seen the
// request.
func Of(vars map[string]any) *RequestIDs {
	ids, _ := vars[idsVar].(*RequestIDs)
	return ids
}

// replace is the replacer's view of the IDs.
func (ids *RequestIDs) replace(key string) (any, bool) {
	switch key {
	case "http.request.txid":
		return ids.String(), true
	case "http.request.uuid_v7":
		return ids.UUIDv7(), true
	case "http.request.trace_id":
		return ids.trace().TraceID().String(), true
	case "http.request.traceparent":
		return ids.trace().String(), true
	case "unique_id":
		return ids.UniqueID(), true
	case "http.request.sharded_id":
		return ids.ShardedID(), true
	case "http.request.call_number":
		return ids.CallNumber(), true
	}
	return nil, false
}

// String returns the request's txid, and implements [fmt.Stringer] for the
// access log.
func (ids *RequestIDs) String() string { return ids.TXID() }

// FollowTrace lets the trace ID follow a trace that Caddy's tracing has begun.
// Only the goroutine that serves the request may call it.
func (ids *RequestIDs) FollowTrace() {
	ids.mu.Lock()
	defer ids.mu.Unlock()
	ids.notations.look(ids.ctx, ids.header)
}

// TXID returns the request's txid. Any goroutine may ask.
func (ids *RequestIDs) TXID() string {
	ids.mu.Lock()
	defer ids.mu.Unlock()
	if ids.txid == "" {
		ids.txid = ids.notations.TXID().String()
	}
	return ids.txid
}

// UUIDv7 returns the request's txid as a UUIDv7.
func (ids *RequestIDs) UUIDv7() string {
	ids.mu.Lock()
	defer ids.mu.Unlock()
	return ids.notations.UUID().String()
}

// trace returns the trace that the request belongs to.
func (ids *RequestIDs) trace() uniqueid.TraceContext {
	ids.FollowTrace()
	ids.mu.Lock()
	defer ids.mu.Unlock()
	return ids.notations.Trace()
}

// UniqueID returns the request's unique_id. Its time is when the request
// arrived.
func (ids *RequestIDs) UniqueID() string {
	if ids.uniqueID == "" {
		arrival, ok := caddyhttp.GetVar(ids.ctx, "start_time").(time.Time)
		if !ok {
			arrival = time.Now()
		}
		ids.uniqueID = ids.handler.makers.uniqueIDs.New(arrival).String()
	}
	return ids.uniqueID
}

// ShardedID returns the request's sharded ID.
func (ids *RequestIDs) ShardedID() string {
	if ids.shardedID == "" {
		ids.shardedID = newShardedID(ids.handler.Shards)
	}
	return ids.shardedID
}

// CallNumber returns the request's call number, or nothing if there is none to
// be had.
func (ids *RequestIDs) CallNumber() string {
	if ids.callNumberAsked {
		return ids.callNumber
	}
	ids.callNumberAsked = true
	number, err := ids.handler.makers.callNumbers.New(ids.ctx)
	if err != nil {
		ids.handler.makers.callNumbers.complain(ids.handler.logger, err)
		return ""
	}
	ids.callNumber = number.String()
	return ids.callNumber
}

// name gives an error that passes by the request's txid as its ID.
func (ids *RequestIDs) name(err error) error {
	handlerErr, ok := errors.AsType[caddyhttp.HandlerError](err)
	if !ok {
		handlerErr = caddyhttp.HandlerError{StatusCode: http.StatusInternalServerError, Err: err}
	}
	handlerErr.ID = ids.String()
	return handlerErr
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.Validator             = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)

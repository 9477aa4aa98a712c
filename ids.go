package orderly

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// UniqueIDs gives each request IDs that no other request has. An ID is made
// when it is first asked for, once in a request, and then stays the same:
// through rewrites, error routes, the access log and the upstream. A request
// that asks for none pays for none.
//
// Placeholder | Description
// ------------|---------------
// `{http.request.txid}` | 96 bits, 20 characters of lower-case base32hex; sorts by time (nginx's ngx_txid)
// `{unique_id}` | 112 bits, 19 characters of `[A-Za-z0-9@-]` (Apache's mod_unique_id)
//
// With access logs on, the entry has the field `txid`. An error that passes by
// gets the txid as its ID, so that the error log's `err_id` and the access log
// join.
type UniqueIDs struct {
	txids     *uniqueid.TXIDGenerator
	uniqueIDs *uniqueid.UniqueIDGenerator
}

// CaddyModule returns the Caddy module information.
func (UniqueIDs) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.unique_ids",
		New: func() caddy.Module { return new(UniqueIDs) },
	}
}

// Provision sets up the generators.
func (u *UniqueIDs) Provision(ctx caddy.Context) error {
	logger := ctx.Logger()
	node, reason := uniqueid.AutoNode(uniqueid.ThisMachine(ctx))
	if reason != "" {
		logger.Info("unique_id carries random bits in place of address and process ID", zap.String("reason", reason))
	}
	u.txids = uniqueid.NewTXIDGenerator()
	var err error
	if u.uniqueIDs, err = uniqueid.NewUniqueIDGenerator(uniqueid.Classic, node); err != nil {
		return fmt.Errorf("setting up unique_id: %w", err)
	}
	return nil
}

// requestIDs are the IDs of one request, as far as they were asked for.
// Requests are served by one goroutine at a time, so there is no lock.
type requestIDs struct {
	handler  *UniqueIDs
	arrival  time.Time
	txid     string
	uniqueID string
}

const idsVar = "orderly.ids"

// ServeHTTP makes the IDs available to all that comes later.
func (u *UniqueIDs) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	ids, again := caddyhttp.GetVar(r.Context(), idsVar).(*requestIDs)
	if !again {
		ids = &requestIDs{handler: u, arrival: time.Now()}
		caddyhttp.SetVar(r.Context(), idsVar, ids)
		r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer).Map(ids.replace)
		logTXID(r.Context(), ids)
	}
	return ids.name(next.ServeHTTP(w, r))
}

// logTXID adds the txid to the access log. Where there is none, nothing is
// ever rendered, and so no ID is made.
func logTXID(ctx context.Context, ids *requestIDs) {
	if fields, ok := ctx.Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields); ok {
		fields.Set(zap.Stringer("txid", ids))
	}
}

// knownTXID returns the txid of a request that has been given one already.
func knownTXID(ctx context.Context) string {
	if ids, ok := caddyhttp.GetVar(ctx, idsVar).(*requestIDs); ok {
		return ids.txid
	}
	return ""
}

// replace is the replacer's view of the IDs.
func (ids *requestIDs) replace(key string) (any, bool) {
	switch key {
	case "http.request.txid":
		return ids.TXID(), true
	case "unique_id":
		return ids.UniqueID(), true
	}
	return nil, false
}

// String implements [fmt.Stringer] for the access log.
func (ids *requestIDs) String() string { return ids.TXID() }

// TXID returns the request's txid.
func (ids *requestIDs) TXID() string {
	if ids.txid == "" {
		ids.txid = ids.handler.txids.New().String()
	}
	return ids.txid
}

// UniqueID returns the request's unique_id.
func (ids *requestIDs) UniqueID() string {
	if ids.uniqueID == "" {
		ids.uniqueID = ids.handler.uniqueIDs.New(ids.arrival).String()
	}
	return ids.uniqueID
}

// name gives an error that passes by the request's txid as its ID.
func (ids *requestIDs) name(err error) error {
	if err == nil {
		return nil
	}
	handlerErr, ok := errors.AsType[caddyhttp.HandlerError](err)
	if !ok {
		handlerErr = caddyhttp.HandlerError{StatusCode: http.StatusInternalServerError, Err: err}
	}
	handlerErr.ID = ids.TXID()
	return handlerErr
}

// Interface guards
var (
	_ caddy.Provisioner           = (*UniqueIDs)(nil)
	_ caddyhttp.MiddlewareHandler = (*UniqueIDs)(nil)
)

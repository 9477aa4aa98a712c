package uniqueids

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/internal/requestid"
	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// requestIDs are the IDs of one request that have been used so far. A request is served
// by one goroutine at a time. Only its txid is also read by other goroutines, which list
// the queues.
type requestIDs struct {
	handler *Handler
	ctx     context.Context // of the request, and so of the IDs
	header  http.Header     // of the request

	mu        sync.Mutex // guards the next two once the request is in a queue
	notations notations
	txid      string // the text of the txid; the caller's may be any text

	made []madeID // the IDs that are not notations of the txid
}

// madeID is an ID that has been used. It is empty if it could not be made.
type madeID struct {
	by   *generator
	text string
}

// log adds the txid to the access log, if there is one. The log renders it when the
// request is over, and so makes it if nobody has used it.
func (ids *requestIDs) log() {
	server, ok := ids.ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if !ok || server.Logs == nil {
		return
	}
	if fields, ok := ids.ctx.Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields); ok {
		fields.Set(zap.Stringer("txid", ids))
	}
}

// txidNotations are the schemes of which a request's ID follows from its txid. For them,
// replace needs no generator.
var txidNotations = []string{"txid", "uuid_v7", "trace_id", "traceparent"}

// replace is the replacer's view of the IDs.
func (ids *requestIDs) replace(key string) (any, bool) {
	switch key {
	case "http.request.txid":
		return ids.String(), true
	case "http.request.uuid_v7":
		return ids.UUIDv7(), true
	case "http.request.trace_id":
		return ids.trace().TraceID().String(), true
	case "http.request.traceparent":
		return ids.trace().String(), true
	}
	if g := ids.handler.generators.byPlaceholder[key]; g != nil {
		return ids.of(g), true
	}
	return nil, false
}

// of returns the ID that a generator makes for this request, or "" if it fails.
func (ids *requestIDs) of(g *generator) string {
	for _, made := range ids.made {
		if made.by == g {
			return made.text
		}
	}
	text, err := g.generate(ids.ctx, ids.arrival())
	if err != nil {
		g.logFailure(ids.handler.logger, err)
	}
	ids.made = append(ids.made, madeID{g, text})
	return text
}

// arrival returns when the request arrived.
func (ids *requestIDs) arrival() time.Time {
	if arrival, ok := caddyhttp.GetVar(ids.ctx, "start_time").(time.Time); ok {
		return arrival
	}
	return time.Now()
}

// String returns the request's txid. It implements [fmt.Stringer] for the access log.
func (ids *requestIDs) String() string { return ids.TXID() }

// TXID implements [requestid.ID].
func (ids *requestIDs) TXID() string {
	ids.mu.Lock()
	defer ids.mu.Unlock()
	if ids.txid == "" {
		ids.txid = ids.notations.TXID().String()
	}
	return ids.txid
}

// UUIDv7 returns the request's txid as a UUIDv7.
func (ids *requestIDs) UUIDv7() string {
	ids.mu.Lock()
	defer ids.mu.Unlock()
	return ids.notations.UUID().String()
}

// trace returns the trace that the request belongs to. Only the goroutine that serves the
// request may call it.
func (ids *requestIDs) trace() uniqueid.TraceContext {
	ids.mu.Lock()
	defer ids.mu.Unlock()
	ids.notations.follow(ids.ctx, ids.header)
	return ids.notations.Trace()
}

// name gives the request's txid to an error as its ID.
func (ids *requestIDs) name(err error) error {
	handlerErr, ok := errors.AsType[caddyhttp.HandlerError](err)
	if !ok {
		handlerErr = caddyhttp.HandlerError{StatusCode: http.StatusInternalServerError, Err: err}
	}
	handlerErr.ID = ids.String()
	return handlerErr
}

// Interface guards
var _ requestid.ID = (*requestIDs)(nil)

package uniqueids

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/internal/throttle"
	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// requestIDs are the IDs of one request that have been used so far. Each is made on first
// use, and then stays the same. A request is served by one goroutine at a time. Only its
// txid is also read by other goroutines, which list the queues.
type requestIDs struct {
	handler *Handler
	ctx     context.Context // of the request, and so of the IDs
	header  http.Header     // of the request
	trace   trace
	adopted string   // the field whose text was adopted as the txid, or ""
	made    []madeID // what placeholders show

	mu   sync.Mutex // guards what follows once the request is in a queue
	uuid uniqueid.UUIDv7
	txid string // that of the UUIDv7, or any text of the caller
}

// madeID is an ID that has been used. It is empty if it could not be made.
type madeID struct {
	placeholder, text string
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

// replace is the replacer's view of the IDs. One that cannot be made is "". The result is false if the
// placeholder is none of ours.
func (ids *requestIDs) replace(placeholder string) (any, bool) {
	for _, made := range ids.made {
		if made.placeholder == placeholder {
			return made.text, true
		}
	}
	newID := ids.handler.byPlaceholder[placeholder]
	if newID == nil {
		return "", false
	}
	text, err := newID(ids)
	if err != nil {
		logger := ids.handler.logger
		failures.Do(placeholder, func(count int) {
			name := strings.ReplaceAll(strings.TrimPrefix(placeholder, "http.request."), "_", " ")
			logger.Error("requests get no "+name, zap.Int("count", count), zap.Error(err))
		})
	}
	ids.made = append(ids.made, madeID{placeholder, text})
	return text, true
}

// failures throttles the log entries of each placeholder, for all handlers together.
var failures throttle.Throttle[string]

// arrival is when the request arrived.
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
		txid, ok := ids.uuidLocked().TXID()
		if !ok { // a caller's, of the far future
			txid = uniqueid.NewTXID()
		}
		ids.txid = txid.String()
	}
	return ids.txid
}

// UUIDv7 returns the request's txid and 20 more random bits, as a UUIDv7.
func (ids *requestIDs) UUIDv7() uniqueid.UUIDv7 {
	ids.mu.Lock()
	defer ids.mu.Unlock()
	return ids.uuidLocked()
}

func (ids *requestIDs) uuidLocked() uniqueid.UUIDv7 {
	if ids.uuid.IsZero() {
		ids.uuid = uniqueid.NewUUIDv7()
	}
	return ids.uuid
}

// name gives the request's txid to an error, if there is one, as its ID.
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

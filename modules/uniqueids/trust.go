package uniqueids

import (
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// adopt adopts the caller's ID if the caller is trusted. Otherwise, it removes the ID
// from the request, so that the upstream does not see it.
func (ids *requestIDs) adopt(r *http.Request) {
	header := ids.handler.Trust
	values, ok := r.Header[header]
	if ok && (!ids.trusted() || len(values) != 1 || !ids.adoptValue(header, values[0])) {
		r.Header.Del(header)
	}
}

// trusted reports whether the peer is one of the server's trusted proxies.
func (ids *requestIDs) trusted() bool {
	trusted, _ := caddyhttp.GetVar(ids.ctx, caddyhttp.TrustedProxyVarKey).(bool)
	return trusted
}

// pass handles a request that already has IDs in a second handler. It removes an ID that
// this handler does not trust, as the first handler does.
func (ids *requestIDs) pass(r *http.Request, second *Handler) {
	second.warnOfFirst(ids.handler)
	header := second.Trust
	values, ok := r.Header[header]
	if ok && (len(values) != 1 || !ids.isOwn(values[0]) && !(ids.trusted() && isID(header, values[0]))) {
		r.Header.Del(header)
	}
}

// isID reports whether the value of a trusted header field can be adopted.
func isID(header, value string) bool {
	if header == traceparentField {
		_, err := uniqueid.ReceiveTraceparent(value)
		return err == nil
	}
	return callersID.MatchString(value)
}

// callersID are the IDs to adopt from a trusted proxy.
var callersID = regexp.MustCompile(`^[A-Za-z0-9._@-]{1,128}$`)

// isOwn reports whether text is one of the request's IDs that was put into the header on
// the way. Only the goroutine that serves the request may call it.
func (ids *requestIDs) isOwn(text string) bool {
	ids.mu.Lock()
	defer ids.mu.Unlock()
	t := &ids.trace
	t.follow(ids.ctx, ids.header)
	own := []string{ids.txid}
	if !ids.uuid.IsZero() {
		own = append(own, ids.uuid.String())
	}
	if !t.used.IsZero() {
		own = append(own, t.used.String(), t.used.TraceID().String())
	}
	if !t.spans.IsZero() {
		own = append(own, t.spans.String())
	}
	for _, made := range ids.made {
		own = append(own, made.text)
	}
	return text != "" && slices.Contains(own, text)
}

// adoptValue adopts the value of the trusted header field, if it is an ID. A txid or a
// UUIDv7 becomes the ID in all notations.
func (ids *requestIDs) adoptValue(header, value string) bool {
	if header == traceparentField {
		var err error
		ids.trace.received, err = uniqueid.ReceiveTraceparent(value)
		return err == nil
	}
	if !isID(header, value) {
		return false
	}
	ids.txid = value
	if txid, err := uniqueid.ParseTXID(value); err == nil {
		ids.uuid, ids.trace.adopted = txid.UUIDv7(rand.Uint32()), true
	}
	if uuid, err := uniqueid.ParseUUIDv7(value); err == nil {
		ids.uuid, ids.trace.adopted = uuid, true
	}
	return true
}

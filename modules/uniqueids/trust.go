package uniqueids

import (
	"net/http"
	"slices"
	"strings"

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
	if second != ids.handler {
		second.warnOfFirst(ids.handler)
	}
	header := second.Trust
	values, ok := r.Header[header]
	if ok && (len(values) != 1 || !ids.isOwn(values[0]) && !(ids.trusted() && isID(header, values[0]))) {
		r.Header.Del(header)
	}
}

// isID reports whether the value of a trusted header field can be adopted.
func isID(header, value string) bool {
	if header != traceparentField {
		return isCallersID(value)
	}
	_, err := uniqueid.ReceiveTraceparent(value)
	return err == nil
}

// isOwn reports whether text is one of the request's IDs that was put into the header on
// the way. Only the goroutine that serves the request may call it.
func (ids *requestIDs) isOwn(text string) bool {
	ids.mu.Lock()
	defer ids.mu.Unlock()
	ids.notations.follow(ids.ctx, ids.header)
	return text != "" && (text == ids.txid || ids.notations.wrote(text) ||
		slices.ContainsFunc(ids.made, func(made madeID) bool { return made.text == text }))
}

// adoptValue adopts the value of the trusted header field, if it is an ID.
func (ids *requestIDs) adoptValue(header, value string) bool {
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

// maxCallersID is the longest ID to adopt from a trusted proxy, in characters.
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

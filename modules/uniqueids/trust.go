package uniqueids

import (
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// adopt adopts the caller's ID for the handler that names the request, if the caller is
// trusted. A second handler adopts nothing. Each removes an ID that it does not trust from
// the request, so that the upstream does not see it. IDs of the request itself, which were
// put into the header on the way, stay.
func (ids *requestIDs) adopt(r *http.Request, handler *Handler) {
	values, ok := r.Header[handler.Trust]
	if !ok {
		return
	}
	trusted, _ := caddyhttp.GetVar(ids.ctx, caddyhttp.TrustedProxyVarKey).(bool)
	switch {
	case len(values) == 1 && trusted && isID(handler.Trust, values[0]):
		if handler == ids.handler {
			ids.adoptValue(handler.Trust, values[0])
		}
	case len(values) != 1 || !ids.isOwn(values[0]):
		r.Header.Del(handler.Trust)
	}
}

// callersID are the IDs to adopt from a trusted proxy.
var callersID = regexp.MustCompile(`^[A-Za-z0-9._@-]{1,128}$`)

// isID reports whether the value of a trusted header field can be adopted.
func isID(header, value string) bool {
	if header == traceparentField {
		_, err := uniqueid.ParseTraceContext(value)
		return err == nil
	}
	return callersID.MatchString(value)
}

// isOwn reports whether text is one of the request's IDs that was put into the header on
// the way.
func (ids *requestIDs) isOwn(text string) bool {
	if span := spanOf(ids.ctx, ids.header); !span.IsZero() && text == span.String() {
		return true
	}
	return text != "" && slices.ContainsFunc(ids.made, func(m madeID) bool { return m.text == text })
}

// adoptValue adopts the value of the trusted header field. A txid or a UUIDv7 becomes the ID
// in all notations.
func (ids *requestIDs) adoptValue(header, value string) {
	if header == traceparentField {
		ids.trace.received, _ = uniqueid.ParseTraceContext(value)
		return
	}
	ids.txid = value
	if txid, err := uniqueid.ParseTXID(value); err == nil {
		ids.uuid, ids.trace.adopted = txid.UUIDv7(rand.Uint32()), true
	}
	if uuid, err := uniqueid.ParseUUIDv7(value); err == nil {
		ids.uuid, ids.trace.adopted = uuid, true
	}
}

package uniqueids

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"golang.org/x/net/http/httpguts"

	"github.com/orderly-http/caddy-orderly/internal/directive"
)

// Header puts an ID into a header field of the request and of its response.
type Header struct {
	// The name of the field, such as `X-Request-Id`. Required.
	Field string `json:"field"`

	// The kind of the ID: `txid`, `unique_id`, `sharded_id`, `call_number`, `uuid_v7`,
	// `trace_id` or `traceparent`. Default: `txid`.
	Kind string `json:"kind,omitempty"`

	kind *kind
}

func (u *Handler) parseHeader(d *caddyfile.Dispenser) error {
	var h Header
	err := directive.Values(d, 1, "the name of a header field, such as X-Request-Id, and perhaps a kind of ID", &h.Field, &h.Kind)
	u.Headers = slices.DeleteFunc(u.Headers, func(earlier Header) bool { return strings.EqualFold(earlier.Field, h.Field) })
	u.Headers = append(u.Headers, h)
	return cmp.Or(err, directive.In(d, h.provision()))
}

// provision finds the kind. It refuses names that are none, kinds that there are not, and fields that an ID
// would break.
func (h *Header) provision() error {
	var schemes []string
	for i := range kinds {
		schemes = append(schemes, kinds[i].scheme)
		if kinds[i].scheme == cmp.Or(h.Kind, kinds[0].scheme) {
			h.kind = &kinds[i]
		}
	}
	switch field := http.CanonicalHeaderKey(h.Field); {
	case !httpguts.ValidHeaderFieldName(h.Field) || !httpguts.ValidTrailerHeader(h.Field):
		return fmt.Errorf("header %q: expected the name of a header field for an ID, such as X-Request-Id", h.Field)
	case h.kind == nil:
		return fmt.Errorf("header %s %q: expected one of the kinds %s", h.Field, h.Kind, strings.Join(schemes, ", "))
	case field == traceparentField && h.kind.scheme != "traceparent", field == tracestateField:
		return fmt.Errorf("header %s %s: W3C Trace Context has another text in this field; expected header traceparent traceparent", h.Field, h.kind.scheme)
	default:
		h.Field = field
		return nil
	}
}

// textFor is the ID in a field, or "" if it could not be made. A field whose text was adopted
// keeps it.
func (ids *requestIDs) textFor(h Header) string {
	if h.Field == ids.adopted {
		return ids.TXID()
	}
	text, _ := ids.replace(h.kind.placeholder)
	return text.(string)
}

// setRequest puts the IDs into the request. Caddy's tracing puts a traceparent of its own there. If
// it comes later, nobody knows the trace yet.
func (u *Handler) setRequest(ids *requestIDs, r *http.Request) {
	for _, h := range u.Headers {
		begun := h.kind.ofTrace && !spanOf(ids.ctx, r.Header).IsZero()
		comes := h.kind.ofTrace && !begun && ids.comesToTracing(r)
		switch {
		case h.Field == traceparentField && (begun || comes):
			continue
		case h.Field == traceparentField:
			ids.dropOldState(r.Header)
		case comes:
			r.Header.Del(h.Field)
			continue
		}
		if httpguts.HeaderValuesContainsToken(r.Header["Connection"], h.Field) {
			r.Header.Del("Connection") // a proxy does not send the fields that it names: a client could hide the ID from the upstream
		}
		r.Header.Set(h.Field, ids.textFor(h))
	}
}

// setResponse puts the IDs into the header of a response. There it replaces what a proxy has copied,
// also into trailers, which some clients merge with the header.
func (u *Handler) setResponse(ids *requestIDs, header http.Header) {
	for _, h := range u.Headers {
		if h.kind.scheme != "traceparent" {
			header.Set(h.Field, ids.textFor(h))
		}
		header.Del(http.TrailerPrefix + h.Field)
	}
}

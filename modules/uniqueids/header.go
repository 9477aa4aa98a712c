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

// kindOf returns the kind of a name, or nil. An empty name means the first kind.
func kindOf(name string) *kind {
	name = cmp.Or(name, kinds[0].scheme)
	if at := slices.IndexFunc(kinds, func(k kind) bool { return k.scheme == name }); at >= 0 {
		return &kinds[at]
	}
	return nil
}

func (u *Handler) parseHeader(d *caddyfile.Dispenser) error {
	var h Header
	err := directive.Values(d, 1, "the name of a header field, such as X-Request-Id, and perhaps a kind of ID", &h.Field, &h.Kind)
	u.Headers = slices.DeleteFunc(u.Headers, func(earlier Header) bool { return strings.EqualFold(earlier.Field, h.Field) })
	u.Headers = append(u.Headers, h)
	return cmp.Or(err, directive.In(d, h.check()))
}

// check refuses names that are none, kinds that there are not, and fields that an ID would break.
func (h Header) check() error {
	kind := kindOf(h.Kind)
	switch field := http.CanonicalHeaderKey(h.Field); {
	case !httpguts.ValidHeaderFieldName(h.Field) || !httpguts.ValidTrailerHeader(h.Field):
		return fmt.Errorf("header %q: expected the name of a header field for an ID, such as X-Request-Id", h.Field)
	case kind == nil:
		var names []string
		for _, kind := range kinds {
			names = append(names, kind.scheme)
		}
		return fmt.Errorf("header %s %q: expected one of the kinds %s", h.Field, h.Kind, strings.Join(names, ", "))
	case field == traceparentField && kind.scheme != "traceparent", field == tracestateField:
		return fmt.Errorf("header %s %s: W3C Trace Context has another text in this field; expected header traceparent traceparent", h.Field, kind.scheme)
	}
	return nil
}

// provision checks the fields and finds their kinds.
func (h *Header) provision() error {
	err := h.check()
	h.Field, h.kind = http.CanonicalHeaderKey(h.Field), kindOf(h.Kind)
	return err
}

// textFor is the ID in a field, or "" if it could not be made. A field whose text was adopted
// keeps it.
func (ids *requestIDs) textFor(h *Header) string {
	if h.Field == ids.adopted {
		return ids.TXID()
	}
	text, _ := ids.replace(h.kind.placeholder)
	return text.(string)
}

// put replaces the values of a header field. With an empty text, it removes them.
func put(header http.Header, field, text string) {
	if header.Del(field); text != "" {
		header.Set(field, text)
	}
}

// setRequest puts the IDs into the request. Caddy's tracing puts a traceparent of its own there. If
// it comes later, nobody knows the trace yet.
func (u *Handler) setRequest(ids *requestIDs, r *http.Request) {
	for i := range u.Headers {
		h := &u.Headers[i]
		begun := h.kind.ofTrace && !spanOf(ids.ctx, r.Header).IsZero()
		comes := h.kind.ofTrace && !begun && ids.comesToTracing(r)
		switch {
		case h.Field == traceparentField && (begun || comes):
		case comes:
			r.Header.Del(h.Field)
		case h.Field == traceparentField:
			ids.dropOldState(r.Header)
			fallthrough
		default:
			if httpguts.HeaderValuesContainsToken(r.Header["Connection"], h.Field) {
				r.Header.Del("Connection") // a proxy does not send the fields that it names: a client could hide the ID from the upstream
			}
			put(r.Header, h.Field, ids.textFor(h))
		}
	}
}

// setResponse puts the IDs into the header of a response. There it replaces what a proxy has copied,
// also into trailers, which some clients merge with the header.
func (u *Handler) setResponse(ids *requestIDs, header http.Header) {
	for i := range u.Headers {
		h := &u.Headers[i]
		if h.kind.scheme != "traceparent" {
			put(header, h.Field, ids.textFor(h))
		}
		header.Del(http.TrailerPrefix + h.Field)
	}
}

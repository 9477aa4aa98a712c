package uniqueids

import (
	"fmt"
	"net/netip"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"golang.org/x/net/http/httpguts"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// ParseDirective sets up the unique_ids directive. Syntax:
//
//	unique_ids [<matcher>] {
//	    layout  classic|threaded|modern
//	    node    auto|random|<IPv4>
//	    shards  <n>
//	    trust   <header>
//	}
func ParseDirective(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	u := new(Handler)
	return u, u.UnmarshalCaddyfile(h.Dispenser)
}

var subdirectives = directive.Table[*Handler]{
	text("layout", "classic, threaded or modern", func(u *Handler) *string { return &u.Layout }, checkLayout),
	text("node", "auto, random or an IPv4 address", func(u *Handler) *string { return &u.Node }, checkNode),
	directive.On("shards", (*Handler).parseShards),
	text("trust", "the name of a request header field", func(u *Handler) *string { return &u.Trust }, checkTrust),
}

// text is a subdirective with one word, for a setting of the handler.
func text(name, expected string, of func(*Handler) *string, check func(string) error) directive.Subdirective[*Handler] {
	return directive.On(name, func(u *Handler, d *caddyfile.Dispenser) (err error) {
		*of(u), err = directive.Checked(d, expected, check)
		return err
	})
}

// UnmarshalCaddyfile sets up the handler from the tokens of its directive, without a
// matcher. See [ParseDirective].
func (u *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // directive name
	return subdirectives.ParseBlock(d, "unique_ids", u)
}

func (u *Handler) parseShards(d *caddyfile.Dispenser) (err error) {
	if u.Shards, err = directive.Count(d, 1); err != nil {
		return err
	}
	return directive.In(d, checkShards(u.Shards))
}

func checkLayout(layout string) error {
	if _, err := uniqueid.ParseLayout(layout); err != nil {
		return fmt.Errorf("layout %q: expected classic, threaded or modern", layout)
	}
	return nil
}

func checkNode(node string) error {
	addr, err := netip.ParseAddr(node)
	if node != nodeAuto && node != nodeRandom && (err != nil || !addr.Is4()) {
		return fmt.Errorf("node %q: expected auto, random or an IPv4 address", node)
	}
	return nil
}

func checkShards(shards int) error {
	if shards < 1 || shards > uniqueid.MaxShards {
		return fmt.Errorf("shards %d: expected a whole number from 1 to %d", shards, uniqueid.MaxShards)
	}
	return nil
}

func checkTrust(header string) error {
	if !httpguts.ValidHeaderFieldName(header) && header != "" {
		return fmt.Errorf("trust %q: expected the name of a request header field, such as X-Request-Id", header)
	}
	return nil
}

// Interface guard
var _ caddyfile.Unmarshaler = (*Handler)(nil)

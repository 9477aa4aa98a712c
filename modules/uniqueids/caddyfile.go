package uniqueids

import (
	"fmt"
	"net/netip"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"golang.org/x/net/http/httpguts"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/uniqueid"
)

var subdirectives = directive.Table[*Handler]{
	text("layout", "classic, threaded or modern", func(u *Handler) *string { return &u.Layout }, checkLayout),
	text("node", "auto, random or an IPv4 address", func(u *Handler) *string { return &u.Node }, checkNode),
	directive.On("shards", func(u *Handler, d *caddyfile.Dispenser) (err error) {
		u.Shards, err = shardsRange.Parse(d)
		return err
	}),
	text("trust", "the name of a request header field", func(u *Handler) *string { return &u.Trust }, checkTrust),
	directive.On("header", (*Handler).parseHeader),
}

// text is a subdirective with one word, for a setting of the handler.
func text(name, expected string, of func(*Handler) *string, check func(string) error) directive.Subdirective[*Handler] {
	return directive.On(name, func(u *Handler, d *caddyfile.Dispenser) (err error) {
		if *of(u), err = directive.Value(d, expected); err != nil {
			return err
		}
		return directive.In(d, check(*of(u)))
	})
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens. Syntax:
//
//	unique_ids [<matcher>] {
//	    layout  classic|threaded|modern
//	    node    auto|random|<IPv4>
//	    shards  <n>
//	    trust   <header>
//	    header  <field> [<kind>]
//	}
func (u *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // directive name
	return subdirectives.ParseBlock(d, "unique_ids", u)
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

var shardsRange = directive.Range{
	Least: 1, Most: uniqueid.MaxShards, Want: fmt.Sprintf("a whole number from 1 to %d", uniqueid.MaxShards),
}

func checkTrust(header string) error {
	if !httpguts.ValidHeaderFieldName(header) && header != "" {
		return fmt.Errorf("trust %q: expected the name of a request header field, such as X-Request-Id", header)
	}
	return nil
}

// Interface guard
var _ caddyfile.Unmarshaler = (*Handler)(nil)

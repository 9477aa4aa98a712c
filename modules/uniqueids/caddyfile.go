package uniqueids

import (
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/orderly-http/caddy-orderly/internal/directive"
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
	directive.On("layout", (*Handler).parseLayout),
	directive.On("node", (*Handler).parseNode),
	directive.On("shards", (*Handler).parseShards),
	directive.On("trust", (*Handler).parseTrust),
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens. Syntax:
//
//	unique_ids {
//	    layout  classic|threaded|modern
//	    node    auto|random|<IPv4>
//	    shards  <n>
//	    trust   <header>
//	}
func (u *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // directive name
	if err := directive.NoArgument(d, "unique_ids"); err != nil {
		return err
	}
	return subdirectives.ParseBlock(d, "unique_ids", u)
}

func (u *Handler) parseLayout(d *caddyfile.Dispenser) (err error) {
	if u.Layout, err = directive.Value(d, "classic, threaded or modern"); err != nil {
		return err
	}
	return directive.In(d, checkLayout(u.Layout))
}

func (u *Handler) parseNode(d *caddyfile.Dispenser) (err error) {
	if u.Node, err = directive.Value(d, "auto, random or an IPv4 address"); err != nil {
		return err
	}
	return directive.In(d, checkNode(u.Node))
}

func (u *Handler) parseShards(d *caddyfile.Dispenser) (err error) {
	if u.Shards, err = directive.Count(d, 1); err != nil {
		return err
	}
	return directive.In(d, checkShards(u.Shards))
}

func (u *Handler) parseTrust(d *caddyfile.Dispenser) (err error) {
	if u.Trust, err = directive.Value(d, "the name of a request header field"); err != nil {
		return err
	}
	return directive.In(d, checkTrust(u.Trust))
}

// Interface guard
var _ caddyfile.Unmarshaler = (*Handler)(nil)

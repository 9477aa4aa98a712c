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

// UnmarshalCaddyfile sets up the handler from the tokens of its directive, without a
// matcher. See [ParseDirective].
func (u *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // directive name
	if err := directive.NoArgument(d, "unique_ids"); err != nil {
		return err
	}
	return subdirectives.ParseBlock(d, "unique_ids", u)
}

func (u *Handler) parseLayout(d *caddyfile.Dispenser) (err error) {
	u.Layout, err = directive.Checked(d, "classic, threaded or modern", checkLayout)
	return err
}

func (u *Handler) parseNode(d *caddyfile.Dispenser) (err error) {
	u.Node, err = directive.Checked(d, "auto, random or an IPv4 address", checkNode)
	return err
}

func (u *Handler) parseShards(d *caddyfile.Dispenser) (err error) {
	if u.Shards, err = directive.Count(d, 1); err != nil {
		return err
	}
	return directive.In(d, checkShards(u.Shards))
}

func (u *Handler) parseTrust(d *caddyfile.Dispenser) (err error) {
	u.Trust, err = directive.Checked(d, "the name of a request header field", checkTrust)
	return err
}

// Interface guard
var _ caddyfile.Unmarshaler = (*Handler)(nil)

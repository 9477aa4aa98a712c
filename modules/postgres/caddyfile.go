package postgres

import (
	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/modules/internal/enginesettings"
)

var settings = directive.Settings[*Engine]{
	directive.SecretText("url", "a URL such as postgres://orderly:secret@10.0.0.1/shop", func(e *Engine) *string { return &e.URL }),
	directive.OptionalText("namespace", enginesettings.WantNamespace, func(e *Engine) *string { return &e.Namespace }),
	enginesettings.TTLSetting(func(e *Engine) *caddy.Duration { return &e.TTL }),
}

// UnmarshalCaddyfile sets up the engine from Caddyfile tokens. Syntax:
//
//	engine postgres {
//	    url       <postgres://...>
//	    namespace <text>
//	    ttl       <duration>
//	}
//
// The values may have placeholders, so they are checked when the engine is provisioned.
func (e *Engine) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // engine name
	return settings.ParseBlock(d, "engine postgres", e)
}

// Interface guard
var _ caddyfile.Unmarshaler = (*Engine)(nil)

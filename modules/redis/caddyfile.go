package redis

import (
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/modules/internal/enginesettings"
)

var settings = enginesettings.With(func(e *Engine) *enginesettings.Common { return &e.Common }, directive.Settings[*Engine]{
	directive.ListSetting("address", func(e *Engine) *[]string { return &e.Address }),
	directive.NumberSetting("database", "<n>", 0, directive.AtLeast(0), func(e *Engine) *int { return &e.Database }),
})

// UnmarshalCaddyfile sets up the engine from Caddyfile tokens. Syntax:
//
//	engine redis {
//	    address   <host:port...>
//	    database  <n>
//	    namespace <text>
//	    ttl       <duration>
//	    username  <name>
//	    password  <text>
//	    tls {
//	        ca          <file>
//	        cert        <file>
//	        key         <file>
//	        server_name <name>
//	    }
//	}
func (e *Engine) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // engine name
	return settings.ParseBlock(d, "engine redis", e)
}

// Interface guard
var _ caddyfile.Unmarshaler = (*Engine)(nil)

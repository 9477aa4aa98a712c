package etcd

import (
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/modules/internal/enginesettings"
)

var settings = enginesettings.With(func(e *Engine) *enginesettings.Common { return &e.Common }, directive.Settings[*Engine]{
	directive.ListSetting("endpoints", func(e *Engine) *[]string { return &e.Endpoints }),
})

// UnmarshalCaddyfile sets up the engine from Caddyfile tokens. Syntax:
//
//	engine etcd {
//	    endpoints <url...>
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
//
// The values may have placeholders, so they are checked when the engine is provisioned.
func (e *Engine) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // engine name
	return settings.ParseBlock(d, "engine etcd", e)
}

// Interface guard
var _ caddyfile.Unmarshaler = (*Engine)(nil)

package redis

import (
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/modules/internal/enginesettings"
)

var subdirectives = enginesettings.With(func(e *Engine) *enginesettings.Common { return &e.Common }, directive.Table[*Engine]{
	directive.OnList("address", func(e *Engine) *[]string { return &e.Address }),
	directive.On("database", (*Engine).parseDatabase),
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
	return subdirectives.ParseBlock(d, "engine redis", e)
}

func (e *Engine) parseDatabase(d *caddyfile.Dispenser) (err error) {
	e.Database, err = directive.AtLeast(0).Parse(d)
	return err
}

// Interface guard
var _ caddyfile.Unmarshaler = (*Engine)(nil)

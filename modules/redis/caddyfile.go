package redis

import (
	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/internal/enginesettings"
)

var subdirectives = directive.Table[*Engine]{
	directive.On("address", (*Engine).parseAddress),
	directive.OnText("namespace", enginesettings.WantNamespace, func(e *Engine) *string { return &e.Namespace }),
	directive.On("ttl", enginesettings.TTL(func(e *Engine) *caddy.Duration { return &e.TTL })),
	directive.OnText("username", "a name", func(e *Engine) *string { return &e.Username }),
	directive.OnText("password", "a text, or a placeholder such as {env.REDIS_PASSWORD} or {file./run/secrets/redis}",
		func(e *Engine) *string { return &e.Password }),
	directive.On("database", (*Engine).parseDatabase),
	directive.On("tls", enginesettings.ParseTLS(func(e *Engine) **enginesettings.TLS { return &e.TLS })),
}

// UnmarshalCaddyfile sets up the engine from Caddyfile tokens. Syntax:
//
//	engine redis {
//	    address   <host:port...>
//	    namespace <text>
//	    ttl       <duration>
//	    username  <name>
//	    password  <text>
//	    database  <n>
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

func (e *Engine) parseAddress(d *caddyfile.Dispenser) error {
	e.Address = d.RemainingArgs()
	return nil
}

func (e *Engine) parseDatabase(d *caddyfile.Dispenser) (err error) {
	e.Database, err = directive.Count(d, 0)
	return err
}

// Interface guard
var _ caddyfile.Unmarshaler = (*Engine)(nil)

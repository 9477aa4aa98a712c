package etcd

import (
	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/internal/enginesettings"
)

var subdirectives = directive.Table[*Engine]{
	directive.On("endpoints", (*Engine).parseEndpoints),
	directive.OnText("namespace", enginesettings.WantNamespace, func(e *Engine) *string { return &e.Namespace }),
	directive.On("ttl", enginesettings.TTL(func(e *Engine) *caddy.Duration { return &e.TTL })),
	directive.OnText("username", "a name", func(e *Engine) *string { return &e.Username }),
	directive.OnText("password", "a text, or a placeholder such as {env.ETCD_PASSWORD} or {file./run/secrets/etcd}",
		func(e *Engine) *string { return &e.Password }),
	directive.On("tls", enginesettings.ParseTLS(func(e *Engine) **enginesettings.TLS { return &e.TLS })),
}

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
	return subdirectives.ParseBlock(d, "engine etcd", e)
}

func (e *Engine) parseEndpoints(d *caddyfile.Dispenser) error {
	e.Endpoints = d.RemainingArgs()
	return nil
}

// Interface guard
var _ caddyfile.Unmarshaler = (*Engine)(nil)

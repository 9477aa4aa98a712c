package etcd

import (
	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/internal/enginesettings"
)

var subdirectives = directive.Table[*Engine]{
	directive.On("endpoints", (*Engine).parseEndpoints),
	directive.On("namespace", enginesettings.Text(enginesettings.WantNamespace, enginesettings.CheckNamespace, func(e *Engine) *string { return &e.Namespace })),
	directive.On("ttl", enginesettings.TTL(func(e *Engine) *caddy.Duration { return &e.TTL })),
	directive.On("username", enginesettings.Text("a name", nil, func(e *Engine) *string { return &e.Username })),
	directive.On("password", enginesettings.Text("a text, or a placeholder such as {env.ETCD_PASSWORD} or {file./run/secrets/etcd}", nil,
		func(e *Engine) *string { return &e.Password })),
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
func (e *Engine) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // engine name
	if err := subdirectives.ParseBlock(d, "engine etcd", e); err != nil {
		return err
	}
	return directive.In(d, e.checkPresence())
}

func (e *Engine) parseEndpoints(d *caddyfile.Dispenser) error {
	e.Endpoints = d.RemainingArgs()
	for _, endpoint := range e.Endpoints {
		if err := enginesettings.Checked(endpoint, checkEndpoint); err != nil {
			return d.WrapErr(err)
		}
	}
	return nil
}

// Interface guard
var _ caddyfile.Unmarshaler = (*Engine)(nil)

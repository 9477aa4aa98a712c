package etcd

import (
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/orderly-http/caddy-orderly/internal/directive"
)

var subdirectives = directive.Table[*Engine]{
	directive.On("endpoints", (*Engine).parseEndpoints),
	directive.OnText("namespace", wantNamespace, func(e *Engine) *string { return &e.Namespace }),
	directive.On("ttl", (*Engine).parseTTL),
	directive.OnText("username", "a name", func(e *Engine) *string { return &e.Username }),
	directive.OnText("password", "a text, or a placeholder such as {env.ETCD_PASSWORD} or {file./run/secrets/etcd}",
		func(e *Engine) *string { return &e.Password }),
	directive.On("tls", (*Engine).parseTLS),
}

var tlsSubdirectives = directive.Table[*TLS]{
	directive.OnText("ca", "a PEM file", func(t *TLS) *string { return &t.CA }),
	directive.OnText("cert", "a PEM file", func(t *TLS) *string { return &t.Cert }),
	directive.OnText("key", "a PEM file", func(t *TLS) *string { return &t.Key }),
	directive.OnText("server_name", "a host name", func(t *TLS) *string { return &t.ServerName }),
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

func (e *Engine) parseTTL(d *caddyfile.Dispenser) (err error) {
	e.TTL, err = directive.Duration(d)
	return err
}

func (e *Engine) parseTLS(d *caddyfile.Dispenser) error {
	e.TLS = new(TLS)
	return tlsSubdirectives.ParseBlock(d, "tls", e.TLS)
}

// Interface guard
var _ caddyfile.Unmarshaler = (*Engine)(nil)

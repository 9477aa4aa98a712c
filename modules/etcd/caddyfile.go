package etcd

import (
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/orderly-http/caddy-orderly/internal/directive"
)

var subdirectives = directive.Table[*Engine]{
	directive.On("endpoints", (*Engine).parseEndpoints),
	directive.On("namespace", text(wantNamespace, checkNamespace, func(e *Engine) *string { return &e.Namespace })),
	directive.On("ttl", (*Engine).parseTTL),
	directive.On("username", text("a name", nil, func(e *Engine) *string { return &e.Username })),
	directive.On("password", text("a text, or a placeholder such as {env.ETCD_PASSWORD} or {file./run/secrets/etcd}", nil,
		func(e *Engine) *string { return &e.Password })),
	directive.On("tls", (*Engine).parseTLS),
}

var tlsSubdirectives = directive.Table[*TLS]{
	directive.On("ca", text("a PEM file", nil, func(t *TLS) *string { return &t.CA })),
	directive.On("cert", text("a PEM file", nil, func(t *TLS) *string { return &t.Cert })),
	directive.On("key", text("a PEM file", nil, func(t *TLS) *string { return &t.Key })),
	directive.On("server_name", text("a host name", nil, func(t *TLS) *string { return &t.ServerName })),
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
		if err := checked(endpoint, checkEndpoint); err != nil {
			return d.WrapErr(err)
		}
	}
	return nil
}

func (e *Engine) parseTTL(d *caddyfile.Dispenser) (err error) {
	if e.TTL, err = directive.Duration(d); err != nil {
		return err
	}
	return directive.In(d, checkTTL(time.Duration(e.TTL)))
}

func (e *Engine) parseTLS(d *caddyfile.Dispenser) error {
	e.TLS = new(TLS)
	return tlsSubdirectives.ParseBlock(d, "tls", e.TLS)
}

// text parses a subdirective with one text as its value, for which check must return nil.
func text[T any](expected string, check func(string) error, field func(T) *string) func(T, *caddyfile.Dispenser) error {
	return func(settings T, d *caddyfile.Dispenser) error {
		value, err := directive.Text(d, expected)
		*field(settings) = value
		if err != nil || check == nil {
			return err
		}
		return directive.In(d, checked(value, check))
	}
}

// checked checks a text. If it contains placeholders, it is checked when it is
// provisioned.
func checked(text string, check func(string) error) error {
	if strings.Contains(text, "{") {
		return nil
	}
	return check(text)
}

// Interface guard
var _ caddyfile.Unmarshaler = (*Engine)(nil)

package etcd

import (
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/orderly-http/caddy-orderly/internal/directive"
)

var subdirectives = directive.Table[*Engine]{
	directive.On("endpoints", (*Engine).parseEndpoints),
	directive.On("namespace", (*Engine).parseNamespace),
	directive.On("ttl", (*Engine).parseTTL),
	directive.On("username", text("a name", func(e *Engine) *string { return &e.Username })),
	directive.On("password", text("a text, or a placeholder such as {env.ETCD_PASSWORD} or {file./run/secrets/etcd}",
		func(e *Engine) *string { return &e.Password })),
	directive.On("tls", (*Engine).parseTLS),
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
	if err := directive.NoArgument(d, "engine etcd"); err != nil {
		return err
	}
	if err := subdirectives.ParseBlock(d, "engine etcd", e); err != nil {
		return err
	}
	if len(e.Endpoints) == 0 {
		return d.Err("engine etcd: no endpoints; expected endpoints with at least one URL such as https://10.0.0.1:2379")
	}
	if (e.Username == "") != (e.Password == "") {
		return d.Err("engine etcd: expected " + wantLogin)
	}
	return nil
}

func (e *Engine) parseEndpoints(d *caddyfile.Dispenser) error {
	e.Endpoints = d.RemainingArgs()
	if len(e.Endpoints) == 0 {
		return d.Errf("endpoints: no value; expected %s, one or more", wantEndpoint)
	}
	for _, endpoint := range e.Endpoints {
		if err := checked(endpoint, checkEndpoint); err != nil {
			return d.WrapErr(err)
		}
	}
	return nil
}

func (e *Engine) parseNamespace(d *caddyfile.Dispenser) (err error) {
	if e.Namespace, err = directive.Text(d, wantNamespace); err != nil {
		return err
	}
	return directive.In(d, checked(e.Namespace, checkNamespace))
}

func (e *Engine) parseTTL(d *caddyfile.Dispenser) error {
	text, err := directive.Text(d, wantTTL)
	if err != nil {
		return err
	}
	ttl, err := caddy.ParseDuration(text)
	if err != nil {
		return d.Errf("ttl %q: expected %s", text, wantTTL)
	}
	e.TTL = caddy.Duration(ttl)
	return directive.In(d, checkTTL(ttl))
}

func (e *Engine) parseTLS(d *caddyfile.Dispenser) error {
	if err := directive.NoArgument(d, "tls"); err != nil {
		return err
	}
	e.TLS = new(TLS)
	if err := tlsSubdirectives.ParseBlock(d, "tls", e.TLS); err != nil {
		return err
	}
	return directive.In(d, e.TLS.check())
}

var tlsSubdirectives = directive.Table[*TLS]{
	directive.On("ca", text("a PEM file", func(t *TLS) *string { return &t.CA })),
	directive.On("cert", text("a PEM file", func(t *TLS) *string { return &t.Cert })),
	directive.On("key", text("a PEM file", func(t *TLS) *string { return &t.Key })),
	directive.On("server_name", text("a host name", func(t *TLS) *string { return &t.ServerName })),
}

// text parses a subdirective with one text as its value.
func text[T any](expected string, field func(T) *string) func(T, *caddyfile.Dispenser) error {
	return func(settings T, d *caddyfile.Dispenser) (err error) {
		*field(settings), err = directive.Text(d, expected)
		return err
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

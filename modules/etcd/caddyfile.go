package etcd

import (
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// subdirectives of `engine etcd`, in the order of the documentation. A
// repeated one overrides the earlier.
var subdirectives = []struct {
	name  string
	parse func(*Engine, *caddyfile.Dispenser) error
}{
	{"endpoints", (*Engine).parseEndpoints},
	{"namespace", (*Engine).parseNamespace},
	{"ttl", (*Engine).parseTTL},
	{"username", (*Engine).parseUsername},
	{"password", (*Engine).parsePassword},
	{"tls", (*Engine).parseTLS},
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
	if d.NextArg() {
		return d.Errf("engine etcd: unexpected argument %q; expected a block", d.Val())
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		if err := e.parseSubdirective(d); err != nil {
			return err
		}
	}
	if len(e.Endpoints) == 0 {
		return d.Err("engine etcd: no endpoints; expected endpoints with at least one URL such as https://10.0.0.1:2379")
	}
	if (e.Username == "") != (e.Password == "") {
		return d.Err("engine etcd: expected " + wantLogin)
	}
	return nil
}

func (e *Engine) parseSubdirective(d *caddyfile.Dispenser) error {
	names := make([]string, len(subdirectives))
	for i, sub := range subdirectives {
		if sub.name == d.Val() {
			return sub.parse(e, d)
		}
		names[i] = sub.name
	}
	return d.Errf("engine etcd: unknown subdirective %q; expected one of %s", d.Val(), strings.Join(names, ", "))
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
	if e.Namespace, err = value(d, wantNamespace); err != nil {
		return err
	}
	if err := checked(e.Namespace, checkNamespace); err != nil {
		return d.WrapErr(err)
	}
	return nil
}

func (e *Engine) parseTTL(d *caddyfile.Dispenser) error {
	text, err := value(d, wantTTL)
	if err != nil {
		return err
	}
	ttl, err := caddy.ParseDuration(text)
	if err != nil {
		return d.Errf("ttl %q: expected %s", text, wantTTL)
	}
	if err := checkTTL(ttl); err != nil {
		return d.WrapErr(err)
	}
	e.TTL = caddy.Duration(ttl)
	return nil
}

func (e *Engine) parseUsername(d *caddyfile.Dispenser) (err error) {
	e.Username, err = value(d, "a name")
	return err
}

func (e *Engine) parsePassword(d *caddyfile.Dispenser) (err error) {
	e.Password, err = value(d, "a text, or a placeholder such as {env.ETCD_PASSWORD} or {file./run/secrets/etcd}")
	return err
}

// tlsTexts are the subdirectives of tls.
var tlsTexts = []struct {
	name, expected string
	of             func(*TLS) *string
}{
	{"ca", "a PEM file", func(t *TLS) *string { return &t.CA }},
	{"cert", "a PEM file", func(t *TLS) *string { return &t.Cert }},
	{"key", "a PEM file", func(t *TLS) *string { return &t.Key }},
	{"server_name", "a host name", func(t *TLS) *string { return &t.ServerName }},
}

func (e *Engine) parseTLS(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		return d.Errf("tls: unexpected argument %q; expected a block", d.Val())
	}
	e.TLS = new(TLS)
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		if err := e.TLS.parse(d); err != nil {
			return err
		}
	}
	if err := e.TLS.check(); err != nil {
		return d.WrapErr(err)
	}
	return nil
}

func (t *TLS) parse(d *caddyfile.Dispenser) (err error) {
	names := make([]string, len(tlsTexts))
	for i, text := range tlsTexts {
		if text.name == d.Val() {
			*text.of(t), err = value(d, text.expected)
			return err
		}
		names[i] = text.name
	}
	return d.Errf("tls: unknown subdirective %q; expected one of %s", d.Val(), strings.Join(names, ", "))
}

// value reads the only value of a subdirective.
func value(d *caddyfile.Dispenser, expected string) (string, error) {
	name := d.Val()
	if !d.NextArg() {
		return "", d.Errf("%s: no value; expected %s", name, expected)
	}
	text := d.Val()
	if d.NextArg() {
		return "", d.Errf("%s: unexpected %q after the value; expected %s", name, d.Val(), expected)
	}
	if text == "" {
		return "", d.Errf("%s: empty; expected %s", name, expected)
	}
	return text, nil
}

// checked checks a text, unless it has placeholders: then that comes later.
func checked(text string, check func(string) error) error {
	if strings.Contains(text, "{") {
		return nil
	}
	return check(text)
}

// Interface guard
var _ caddyfile.Unmarshaler = (*Engine)(nil)

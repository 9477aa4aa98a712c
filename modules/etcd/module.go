// Package etcd makes the etcd store a module of Caddy. The store itself is the library
// serializer/etcd, which does not depend on Caddy.
//
//	xcaddy build --with github.com/orderly-http/caddy-orderly \
//	    --with github.com/orderly-http/caddy-orderly/modules/etcd
package etcd

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/modules/internal/enginesettings"
	"github.com/orderly-http/caddy-orderly/modules/serialize"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
)

func init() { caddy.RegisterModule(Engine{}) }

// Engine keeps queues in an etcd cluster, for any number of machines. All handlers
// with the same cluster, namespace and prefix share a queue; their `path` does not
// matter.
//
// The cluster need not be reachable when the configuration is loaded. While it is
// not, requests are refused with 503.
//
// All texts may contain placeholders such as `{env.ETCD_PASSWORD}` and
// `{file./run/secrets/etcd}`.
type Engine struct {
	// The URLs of the cluster's members, all http or all https. The default port is
	// 2379. At least one URL is required.
	Endpoints []string `json:"endpoints,omitempty"`

	enginesettings.Common
	enginesettings.Place `json:"-"`

	options etcd.Options
}

// CaddyModule returns the Caddy module information.
func (Engine) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.serialize.engines.etcd", New: func() caddy.Module { return new(Engine) }}
}

var settings = enginesettings.With(func(e *Engine) *enginesettings.Common { return &e.Common }, directive.Settings[*Engine]{
	directive.ListSetting("endpoints", "<url...>", "addresses of members, such as http://localhost:2379", func(e *Engine) *[]string { return &e.Endpoints }, nil),
})

// UnmarshalCaddyfile sets up the engine from Caddyfile tokens. Syntax:
//
//	engine etcd {
//	    endpoints <url...>
//	    namespace <text>
//	    ttl       <duration>
//	    username  <name>
//	    password  <text>
//	    tls { ... } # ca, cert and key <file>, server_name <name>
//	}
//
// The values may have placeholders, so they are checked when the engine is provisioned.
func (e *Engine) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // engine name
	return settings.ParseBlock(d, "engine etcd", e)
}

// Provision replaces placeholders, applies defaults, checks the settings, and reads the
// certificates.
func (e *Engine) Provision(caddy.Context) (err error) {
	var set Engine
	if set.Common, set.Endpoints, err = e.Common.Expanded("endpoints", e.Endpoints, etcd.Endpoint); err != nil {
		return err
	}
	if err := set.check(); err != nil {
		return err
	}
	e.options = etcd.Options{
		Endpoints: set.Endpoints, Namespace: strings.TrimRight(set.Namespace, "/") + "/", TTL: time.Duration(set.TTL),
		Username: set.Username, Password: set.Password,
	}
	if e.options.TLS, err = set.TLS.Config(); err == nil {
		e.Place = enginesettings.NewPlace("etcd", e.options.Namespace, e.options.Endpoints, set)
	}
	return err
}

// check returns an error for invalid settings. Placeholders have been replaced, and
// endpoints are normalized.
func (e *Engine) check() error {
	switch {
	case len(e.Endpoints) == 0:
		return errors.New("endpoints: none; expected at least one URL such as https://10.0.0.1:2379")
	case (e.Username == "") != (e.Password == ""):
		return errors.New("expected username and password, both or neither")
	case strings.Contains(e.Namespace, "/!"):
		return fmt.Errorf("namespace %q: expected none with /!, which begins other keys of the namespace before it", e.Namespace)
	}
	secure := strings.HasPrefix(e.Endpoints[0], "https:")
	for _, endpoint := range e.Endpoints {
		if strings.HasPrefix(endpoint, "https:") != secure {
			return fmt.Errorf("endpoints %q and %q: expected all http or all https", e.Endpoints[0], endpoint)
		}
	}
	if e.TLS != nil && !secure {
		return fmt.Errorf("tls: endpoint %q is not https", e.Endpoints[0])
	}
	return e.Common.Check()
}

// Open implements [serialize.EngineModule].
func (e *Engine) Open(_ string, log *slog.Logger) (serializer.Store, error) {
	e.options.Log = log
	return etcd.Open(e.options)
}

// Interface guards
var (
	_ caddyfile.Unmarshaler  = (*Engine)(nil)
	_ caddy.Provisioner      = (*Engine)(nil)
	_ serialize.EngineModule = (*Engine)(nil)
)

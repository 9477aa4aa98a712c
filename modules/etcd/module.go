// Package etcd makes the etcd store a module of Caddy. The store itself is the library
// serializer/etcd, which does not depend on Caddy.
//
//	xcaddy build --with github.com/orderly-http/caddy-orderly \
//	    --with github.com/orderly-http/caddy-orderly/modules/etcd
package etcd

import (
	"log/slog"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/orderly-http/caddy-orderly/modules/internal/enginesettings"
	"github.com/orderly-http/caddy-orderly/modules/serialize"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/etcd"
)

func init() {
	caddy.RegisterModule(Engine{})
}

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
	return caddy.ModuleInfo{
		ID:  "http.serialize.engines.etcd",
		New: func() caddy.Module { return new(Engine) },
	}
}

// Provision replaces placeholders, applies defaults, checks the settings, and reads the
// certificates.
func (e *Engine) Provision(caddy.Context) (err error) {
	var set Engine
	if set.Common, set.Endpoints, err = e.Common.Expanded("endpoints", e.Endpoints, normalized); err != nil {
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

// Open implements [serialize.EngineModule].
func (e *Engine) Open(_ string, log *slog.Logger) (serializer.Store, error) {
	o := e.options
	o.Log = log
	return etcd.Open(o)
}

// Interface guards
var (
	_ caddy.Provisioner      = (*Engine)(nil)
	_ serialize.EngineModule = (*Engine)(nil)
)

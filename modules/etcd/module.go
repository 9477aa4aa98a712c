// Package etcd makes the etcd engine a module of Caddy. The engine itself is the
// library serializer/etcd, which does not depend on Caddy.
//
//	xcaddy build --with github.com/orderly-http/caddy-orderly \
//	    --with github.com/orderly-http/caddy-orderly/modules/etcd
package etcd

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

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

	// Begins the names of all keys in etcd. Handlers with different
	// namespaces have different queues. Default: `orderly`.
	Namespace string `json:"namespace,omitempty"`

	// How long the others wait for a Caddy that died or is cut off, as a duration of
	// whole seconds, `2s` to `1h`. 0 means the default. Default: `10s`.
	TTL caddy.Duration `json:"ttl,omitempty"`

	// The user name for etcd. Default: none.
	Username string `json:"username,omitempty"`

	// The password of that user. Default: none.
	Password string `json:"password,omitempty"`

	// The TLS settings for https endpoints. Default: the system's certificate
	// authorities, and no client certificate.
	TLS *TLS `json:"tls,omitempty"`

	options etcd.Options
	key     string
	space   string
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
func (e *Engine) Provision(ctx caddy.Context) error {
	if err := e.provision(ctx); err != nil {
		return fmt.Errorf("engine etcd: %w", err)
	}
	return nil
}

func (e *Engine) provision(ctx caddy.Context) error {
	if registry := ctx.GetMetricsRegistry(); registry != nil {
		if err := engines.register(registry); err != nil {
			return err
		}
	}
	set, err := e.expand(caddy.NewReplacer())
	if err != nil {
		return err
	}
	if err := set.check(); err != nil {
		return err
	}
	e.options = etcd.Options{
		Namespace: namespace(set.Namespace),
		TTL:       time.Duration(set.TTL),
		Username:  set.Username,
		Password:  set.Password,
	}
	for _, endpoint := range set.Endpoints {
		e.options.Endpoints = append(e.options.Endpoints, withPort(endpoint))
	}
	if set.secure() {
		if e.options.TLS, err = set.TLS.config(); err != nil {
			return err
		}
	}
	e.space = space(e.options)
	e.key, err = set.identity()
	return err
}

// expand returns the settings with placeholders replaced.
func (e *Engine) expand(repl *caddy.Replacer) (*Engine, error) {
	set := &Engine{Namespace: e.Namespace, TTL: e.TTL, Username: e.Username, Password: e.Password}
	for _, endpoint := range e.Endpoints {
		text, err := repl.ReplaceOrErr(endpoint, true, true)
		if err != nil {
			return nil, fmt.Errorf("endpoints: %w", err)
		}
		set.Endpoints = append(set.Endpoints, strings.Fields(text)...)
	}
	type setting struct {
		name string
		text *string
	}
	settings := []setting{{"namespace", &set.Namespace}, {"username", &set.Username}, {"password", &set.Password}}
	if e.TLS != nil {
		set.TLS = new(*e.TLS)
		settings = append(settings, setting{"tls ca", &set.TLS.CA}, setting{"tls cert", &set.TLS.Cert},
			setting{"tls key", &set.TLS.Key}, setting{"tls server_name", &set.TLS.ServerName})
	}
	for _, s := range settings {
		var err error
		if *s.text, err = repl.ReplaceOrErr(*s.text, true, true); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return set, nil
}

// identity distinguishes clusters, namespaces and ways to reach them. It reveals no
// secret.
func (e *Engine) identity() (string, error) {
	all, err := json.Marshal(e)
	if err != nil {
		return "", fmt.Errorf("naming the engine: %w", err)
	}
	return fmt.Sprintf("etcd:%s:%x", namespace(e.Namespace), sha256.Sum256(all)), nil
}

// space identifies the cluster by its members, in any order, and the namespace.
func space(o etcd.Options) string {
	members := slices.Clone(o.Endpoints)
	slices.Sort(members)
	return fmt.Sprintf("etcd:%s:%s", o.Namespace, strings.Join(slices.Compact(members), ","))
}

// Space implements [serialize.SharedSpace]. Settings such as ttl or username lead to
// separate engines, each with a lease, but the queues are those of the cluster.
func (e *Engine) Space(string) string { return e.space }

// Key implements [serialize.EngineModule].
func (e *Engine) Key(string) string { return e.key }

// Open implements [serialize.EngineModule].
func (e *Engine) Open(_ string, log *slog.Logger) (serializer.Engine, error) {
	o := e.options
	o.Log = log
	opened, err := etcd.Open(o)
	if err != nil {
		return nil, err
	}
	return engines.add(opened), nil
}

// Interface guards
var (
	_ caddy.Provisioner      = (*Engine)(nil)
	_ serialize.EngineModule = (*Engine)(nil)
	_ serialize.SharedSpace  = (*Engine)(nil)
)

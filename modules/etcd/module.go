// Package etcd makes the etcd store a module of Caddy. The store itself is the library
// serializer/etcd, which does not depend on Caddy.
//
//	xcaddy build --with github.com/orderly-http/caddy-orderly \
//	    --with github.com/orderly-http/caddy-orderly/modules/etcd
package etcd

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/orderly-http/caddy-orderly/internal/enginesettings"
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
	TLS *enginesettings.TLS `json:"tls,omitempty"`

	options etcd.Options
	key     string
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
func (e *Engine) Provision(caddy.Context) error {
	set, err := e.expand()
	if err == nil {
		err = e.apply(set)
	}
	if err != nil {
		return fmt.Errorf("engine etcd: %w", err)
	}
	return nil
}

// apply takes over expanded settings.
func (e *Engine) apply(set *Engine) (err error) {
	e.options = etcd.Options{
		Namespace: strings.TrimRight(set.Namespace, "/") + "/",
		TTL:       time.Duration(set.TTL),
		Username:  set.Username,
		Password:  set.Password,
	}
	for _, endpoint := range set.Endpoints {
		e.options.Endpoints = append(e.options.Endpoints, withPort(endpoint))
	}
	if e.options.TLS, err = set.TLS.Config(); err != nil {
		return err
	}
	// The key tells clusters, namespaces and ways to reach them apart. It reveals no secret.
	all, _ := json.Marshal(set) // texts and numbers always marshal
	e.key = fmt.Sprintf("etcd:%s:%x", e.options.Namespace, sha256.Sum256(all))
	return nil
}

// expand replaces placeholders, applies defaults, and checks the settings.
func (e *Engine) expand() (*Engine, error) {
	set := &Engine{
		Namespace: cmp.Or(e.Namespace, etcd.DefaultNamespace), TTL: cmp.Or(e.TTL, caddy.Duration(etcd.DefaultTTL)),
		Username: e.Username, Password: e.Password, TLS: e.TLS.Clone(),
	}
	endpoints := strings.Join(e.Endpoints, " ")
	if err := enginesettings.Expand(append(set.TLS.Settings(), []enginesettings.Setting{
		{Name: "endpoints", Text: &endpoints}, {Name: "namespace", Text: &set.Namespace},
		{Name: "username", Text: &set.Username}, {Name: "password", Text: &set.Password},
	}...)...); err != nil {
		return nil, err
	}
	set.Endpoints = strings.Fields(endpoints)
	return set, set.check()
}

// Space implements [serialize.SharedSpace]. Settings such as ttl or username lead to separate
// engines, each with a lease, but the queues are those of the cluster.
func (e *Engine) Space(string) string {
	members := slices.Sorted(slices.Values(e.options.Endpoints))
	return fmt.Sprintf("etcd:%s:%s", e.options.Namespace, strings.Join(slices.Compact(members), ","))
}

// Key implements [serialize.EngineModule].
func (e *Engine) Key(string) string { return e.key }

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
	_ serialize.SharedSpace  = (*Engine)(nil)
)

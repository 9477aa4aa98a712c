// Package redis makes the Redis store a module of Caddy. The store itself is the library
// serializer/redis, which does not depend on Caddy.
//
//	xcaddy build --with github.com/orderly-http/caddy-orderly \
//	    --with github.com/orderly-http/caddy-orderly/modules/redis
package redis

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/orderly-http/caddy-orderly/internal/enginesettings"
	"github.com/orderly-http/caddy-orderly/modules/serialize"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/redis"
)

func init() {
	caddy.RegisterModule(Engine{})
}

// Engine keeps queues in Redis or Valkey, for any number of machines. All handlers with
// the same servers, database, namespace and prefix share a queue; their `path` does not
// matter.
//
// The server need not be reachable when the configuration is loaded. While it is not,
// requests are refused with 503. A server that would lose tickets by itself, or has no
// rights for the user, is refused.
//
// All texts may contain placeholders such as `{env.REDIS_PASSWORD}` and
// `{file./run/secrets/redis}`.
type Engine struct {
	// The servers, as host and port: the master, and the replicas that may take over. The
	// engine uses the one that is the master. The default port is 6379. At least one is
	// required.
	Address []string `json:"address,omitempty"`

	// Begins the names of all keys, in braces. Handlers with different namespaces have
	// different queues. Default: `orderly`.
	Namespace string `json:"namespace,omitempty"`

	// How long the others wait for a Caddy that died or is cut off, as a duration of
	// whole seconds, `2s` to `1h`. 0 means the default. Default: `10s`.
	TTL caddy.Duration `json:"ttl,omitempty"`

	// The user name. Default: none, which means the user `default`.
	Username string `json:"username,omitempty"`

	// The password of that user. Default: none.
	Password string `json:"password,omitempty"`

	// The number of the database. Default: 0.
	Database int `json:"database,omitempty"`

	// The TLS settings. An empty block is enough to encrypt connections. Default: none, no
	// encryption.
	TLS *enginesettings.TLS `json:"tls,omitempty"`

	options redis.Options
	key     string
}

// CaddyModule returns the Caddy module information.
func (Engine) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.serialize.engines.redis",
		New: func() caddy.Module { return new(Engine) },
	}
}

// Provision replaces placeholders, applies defaults, checks the settings, and reads the
// certificates.
func (e *Engine) Provision(caddy.Context) error {
	if err := e.provision(); err != nil {
		return fmt.Errorf("engine redis: %w", err)
	}
	return nil
}

func (e *Engine) provision() (err error) {
	set := *e
	set.Namespace, set.TTL, set.TLS = cmp.Or(e.Namespace, redis.DefaultNamespace), cmp.Or(e.TTL, caddy.Duration(enginesettings.DefaultTTL)), e.TLS.Clone()
	addresses := strings.Join(e.Address, " ")
	if err := enginesettings.Expand(append(set.TLS.Settings(), []enginesettings.Setting{
		{Name: "address", Text: &addresses}, {Name: "namespace", Text: &set.Namespace},
		{Name: "username", Text: &set.Username}, {Name: "password", Text: &set.Password},
	}...)...); err != nil {
		return err
	}
	set.Address = strings.Fields(addresses)
	for i, address := range set.Address {
		if set.Address[i], err = withPort(address); err != nil {
			return err
		}
	}
	if err := set.check(); err != nil {
		return err
	}
	e.options = redis.Options{
		Addresses: set.Address, Namespace: set.Namespace, TTL: time.Duration(set.TTL),
		Username: set.Username, Password: set.Password, Database: set.Database,
	}
	// The key tells servers, namespaces and ways to reach them apart. It reveals no secret.
	all, _ := json.Marshal(set) // texts and numbers always marshal
	e.key = fmt.Sprintf("redis:%s:%x", set.Namespace, sha256.Sum256(all))
	e.options.TLS, err = set.TLS.Config()
	return err
}

// check returns an error for invalid settings.
func (e *Engine) check() error {
	switch {
	case len(e.Address) == 0:
		return errors.New("address: none; expected at least one host and port such as 10.0.0.1:6379")
	case e.Username != "" && e.Password == "":
		return errors.New("username: expected a password, too")
	}
	return cmp.Or(e.TLS.Check(), enginesettings.CheckNamespace(e.Namespace), enginesettings.CheckTTL(time.Duration(e.TTL)))
}

// withPort adds the default port to an address.
func withPort(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		host, port = strings.Trim(address, "[]"), "6379"
	}
	if host == "" || strings.Contains(address, "/") {
		return "", fmt.Errorf("address %q: expected host and port such as 10.0.0.1:6379", address)
	}
	return net.JoinHostPort(host, port), nil
}

// Space implements [serialize.SharedSpace]. Settings such as ttl or username lead to separate
// engines, each with a session, but the queues are those of the servers.
func (e *Engine) Space(string) string {
	servers := slices.Sorted(slices.Values(e.options.Addresses))
	return fmt.Sprintf("redis:%s:%d:%s", e.options.Namespace, e.options.Database, strings.Join(slices.Compact(servers), ","))
}

// Key implements [serialize.EngineModule].
func (e *Engine) Key(string) string { return e.key }

// Open implements [serialize.EngineModule].
func (e *Engine) Open(_ string, log *slog.Logger) (serializer.Store, error) {
	o := e.options
	o.Log = log
	return redis.Open(o)
}

// Interface guards
var (
	_ caddy.Provisioner      = (*Engine)(nil)
	_ serialize.EngineModule = (*Engine)(nil)
	_ serialize.SharedSpace  = (*Engine)(nil)
)

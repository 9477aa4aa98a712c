// Package redis makes the Redis store a module of Caddy. The store itself is the library
// serializer/redis, which does not depend on Caddy.
//
//	xcaddy build --with github.com/orderly-http/caddy-orderly \
//	    --with github.com/orderly-http/caddy-orderly/modules/redis
package redis

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/modules/internal/enginesettings"
	"github.com/orderly-http/caddy-orderly/modules/serialize"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/redis"
)

func init() { caddy.RegisterModule(Engine{}) }

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

	// The number of the database. Default: 0.
	Database int `json:"database,omitempty"`

	enginesettings.Common
	enginesettings.Place `json:"-"`

	options redis.Options
}

// CaddyModule returns the Caddy module information.
func (Engine) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.serialize.engines.redis", New: func() caddy.Module { return new(Engine) }}
}

var settings = enginesettings.With(func(e *Engine) *enginesettings.Common { return &e.Common }, directive.Settings[*Engine]{
	directive.ListSetting("address", "<host:port...>", "addresses of servers, such as localhost:6379", func(e *Engine) *[]string { return &e.Address }, nil),
	directive.NumberSetting("database", "<n>", 0, directive.AtLeast(0), func(e *Engine) *int { return &e.Database }),
})

// UnmarshalCaddyfile sets up the engine from Caddyfile tokens. Syntax:
//
//	engine redis {
//	    address   <host:port...>
//	    database  <n>
//	    namespace <text>
//	    ttl       <duration>
//	    username  <name>
//	    password  <text>
//	    tls { ... } # ca, cert and key <file>, server_name <name>
//	}
func (e *Engine) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // engine name
	return settings.ParseBlock(d, "engine redis", e)
}

// Provision replaces placeholders, applies defaults, checks the settings, and reads the
// certificates.
func (e *Engine) Provision(caddy.Context) (err error) {
	set := Engine{Database: e.Database}
	if set.Common, set.Address, err = e.Common.Expanded("address", e.Address, redis.Address); err != nil {
		return err
	}
	e.options = redis.Options{
		Addresses: set.Address, Namespace: set.Namespace, TTL: time.Duration(set.TTL),
		Username: set.Username, Password: set.Password, Database: set.Database,
	}
	e.Place = enginesettings.NewPlace("redis", fmt.Sprintf("%s:%d", set.Namespace, set.Database), set.Address, set)
	e.options.TLS, err = set.TLS.Config()
	return cmp.Or(e.options.Check(), set.Check(), err)
}

// Open implements [serialize.EngineModule].
func (e *Engine) Open(_ string, log *slog.Logger) (serializer.Store, error) {
	e.options.Log = log
	return redis.Open(e.options)
}

// Interface guards
var (
	_ caddyfile.Unmarshaler  = (*Engine)(nil)
	_ caddy.Provisioner      = (*Engine)(nil)
	_ serialize.EngineModule = (*Engine)(nil)
)

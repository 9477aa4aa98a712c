// Package postgres makes the PostgreSQL store a module of Caddy. The store itself is the
// library serializer/postgres, which does not depend on Caddy.
//
//	xcaddy build --with github.com/orderly-http/caddy-orderly \
//	    --with github.com/orderly-http/caddy-orderly/modules/postgres
package postgres

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/modules/internal/enginesettings"
	"github.com/orderly-http/caddy-orderly/modules/serialize"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/postgres"
)

func init() { caddy.RegisterModule(Engine{}) }

// Engine keeps queues in a PostgreSQL database, for any number of machines. All handlers
// with the same database, namespace and prefix share a queue; their `path` does not
// matter.
//
// The database need not be reachable when the configuration is loaded. While it is not,
// requests are refused with 503.
//
// All texts may contain placeholders such as `{env.DATABASE_URL}` and
// `{file./run/secrets/database}`.
type Engine struct {
	// Where the database is, such as
	// `postgres://orderly:secret@10.0.0.1/shop?sslmode=verify-full`. Of several hosts,
	// separated by commas, the one that can be written to is used. Required.
	URL string `json:"url,omitempty"`

	enginesettings.Lease
	enginesettings.Place `json:"-"`

	options postgres.Options
}

// CaddyModule returns the Caddy module information.
func (Engine) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.serialize.engines.postgres", New: func() caddy.Module { return new(Engine) }}
}

var settings = enginesettings.WithLease(func(e *Engine) *enginesettings.Lease { return &e.Lease }, directive.Settings[*Engine]{
	directive.OptionalText("url", "a URL such as postgres://orderly:secret@10.0.0.1/shop", func(e *Engine) *string { return &e.URL }),
})

// UnmarshalCaddyfile sets up the engine from Caddyfile tokens. Syntax:
//
//	engine postgres {
//	    url       <postgres://...>
//	    namespace <text>
//	    ttl       <duration>
//	}
//
// The values may have placeholders, so they are checked when the engine is provisioned.
func (e *Engine) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // engine name
	return settings.ParseBlock(d, "engine postgres", e)
}

// Provision replaces placeholders, applies defaults, and checks the settings.
func (e *Engine) Provision(caddy.Context) error {
	set := *e
	err := set.Lease.Expand(enginesettings.Setting{Name: "url", Text: &set.URL})
	if err = cmp.Or(err, set.Lease.Check()); err != nil {
		return err
	}
	o := postgres.Options{URL: set.URL, Namespace: set.Namespace, TTL: time.Duration(set.TTL)}
	store, err := postgres.Open(o) // which asks nothing of the server yet
	if err != nil {
		return err
	}
	e.options = o
	e.Place = enginesettings.NewPlace("postgres", o.Namespace, []string{placeOf(o.URL)}, []any{o.URL, o.TTL})
	return store.Close()
}

// placeOf says where the tables of a valid URL are: servers, database, and what decides on the
// schema. Other names of the same server or database count as other places.
func placeOf(valid string) string {
	server, _ := pgconn.ParseConfig(valid)
	hosts := []string{fmt.Sprintf("%s:%d", server.Host, server.Port)}
	for _, other := range server.Fallbacks {
		hosts = append(hosts, fmt.Sprintf("%s:%d", other.Host, other.Port))
	}
	slices.Sort(hosts)
	schema := url.Values{"user": {server.User}}
	for _, name := range []string{"search_path", "options"} {
		if value := server.RuntimeParams[name]; value != "" {
			schema.Set(name, value)
		}
	}
	return strings.Join(slices.Compact(hosts), ",") + "/" + server.Database + "?" + schema.Encode()
}

// Open implements [serialize.EngineModule].
func (e *Engine) Open(_ string, log *slog.Logger) (serializer.Store, error) {
	e.options.Log = log
	return postgres.Open(e.options)
}

// Interface guards
var (
	_ caddyfile.Unmarshaler  = (*Engine)(nil)
	_ caddy.Provisioner      = (*Engine)(nil)
	_ serialize.EngineModule = (*Engine)(nil)
)

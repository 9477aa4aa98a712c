// Package postgres makes the PostgreSQL store a module of Caddy. The store itself is the
// library serializer/postgres, which does not depend on Caddy.
//
//	xcaddy build --with github.com/orderly-http/caddy-orderly \
//	    --with github.com/orderly-http/caddy-orderly/modules/postgres
package postgres

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/orderly-http/caddy-orderly/internal/enginesettings"
	"github.com/orderly-http/caddy-orderly/modules/serialize"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/postgres"
)

func init() {
	caddy.RegisterModule(Engine{})
}

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

	// Handlers with different namespaces have different queues, in the same tables.
	// Default: `orderly`.
	Namespace string `json:"namespace,omitempty"`

	// How long the others wait for a Caddy that died or is cut off, as a duration of
	// whole seconds, `2s` to `1h`. 0 means
	// the default. Default: `10s`.
	TTL caddy.Duration `json:"ttl,omitempty"`

	enginesettings.Place `json:"-"`

	options postgres.Options
}

// CaddyModule returns the Caddy module information.
func (Engine) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.serialize.engines.postgres",
		New: func() caddy.Module { return new(Engine) },
	}
}

// Provision replaces placeholders, applies defaults, and checks the settings.
func (e *Engine) Provision(caddy.Context) error {
	if err := e.provision(); err != nil {
		return fmt.Errorf("engine postgres: %w", err)
	}
	return nil
}

func (e *Engine) provision() error {
	o := postgres.Options{URL: e.URL, Namespace: cmp.Or(e.Namespace, postgres.DefaultNamespace), TTL: cmp.Or(time.Duration(e.TTL), enginesettings.DefaultTTL)}
	err := enginesettings.Expand(enginesettings.Setting{Name: "url", Text: &o.URL}, enginesettings.Setting{Name: "namespace", Text: &o.Namespace})
	if err != nil {
		return err
	}
	if err := cmp.Or(checkURL(o.URL), enginesettings.CheckNamespace(o.Namespace), enginesettings.CheckTTL(o.TTL)); err != nil {
		return err
	}
	server, err := pgconn.ParseConfig(o.URL)
	if err != nil {
		return fmt.Errorf("url: %w", err) // without the password
	}
	databases := []string{fmt.Sprintf("%s:%d/%s", server.Host, server.Port, server.Database)}
	for _, other := range server.Fallbacks {
		databases = append(databases, fmt.Sprintf("%s:%d/%s", other.Host, other.Port, server.Database))
	}
	e.options = o
	e.Place = enginesettings.NewPlace("postgres", o.Namespace, databases, []any{o.URL, o.TTL})
	return nil
}

const wantURL = "a URL such as postgres://orderly:secret@10.0.0.1/shop"

// checkURL returns an error for what is no URL of PostgreSQL. It does not show it: it may
// contain a password.
func checkURL(text string) error {
	if !strings.HasPrefix(text, "postgres://") && !strings.HasPrefix(text, "postgresql://") {
		return errors.New("url: expected " + wantURL)
	}
	return nil
}

// Open implements [serialize.EngineModule].
func (e *Engine) Open(_ string, log *slog.Logger) (serializer.Store, error) {
	o := e.options
	o.Log = log
	return postgres.Open(o)
}

// Interface guards
var (
	_ caddy.Provisioner      = (*Engine)(nil)
	_ serialize.EngineModule = (*Engine)(nil)
	_ serialize.SharedSpace  = (*Engine)(nil)
)

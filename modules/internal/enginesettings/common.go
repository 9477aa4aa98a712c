package enginesettings

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/orderly-http/caddy-orderly/internal/directive"
)

// Common are settings of engines that log in to servers.
type Common struct {
	Lease

	// The user name. Default: none.
	Username string `json:"username,omitempty"`

	// The password of that user. Default: none.
	Password string `json:"password,omitempty"`

	// The TLS settings. Default: the system's certificate authorities, and no client
	// certificate, where connections are encrypted.
	TLS *TLS `json:"tls,omitempty"`
}

// With adds [Common] to the settings of an engine.
func With[T any](of func(T) *Common, settings directive.Settings[T]) directive.Settings[T] {
	return append(WithLease(func(e T) *Lease { return &of(e).Lease }, settings),
		directive.OptionalText("username", "a name", func(e T) *string { return &of(e).Username }),
		directive.OptionalText("password", "a text, or a placeholder such as {env.PASSWORD} or {file./run/secrets/password}",
			func(e T) *string { return &of(e).Password }),
		directive.Setting[T]{Name: "tls", Parse: func(e T, d *caddyfile.Dispenser) error {
			of(e).TLS = new(TLS)
			return tlsSettings.ParseBlock(d, "tls", of(e).TLS)
		}})
}

// Expanded applies defaults, and replaces placeholders in the settings and in the list of
// servers, which is named name. normal writes each server in one form.
func (c Common) Expanded(name string, servers []string, normal func(string) (string, error)) (Common, []string, error) {
	list := strings.Join(servers, " ")
	settings := []Setting{{name, &list}, {"username", &c.Username}, {"password", &c.Password}}
	if c.TLS != nil {
		c.TLS = new(*c.TLS)
		settings = append(settings, c.TLS.settings()...)
	}
	err := c.Lease.Expand(settings...)
	servers = strings.Fields(list)
	for i := 0; i < len(servers) && err == nil; i++ {
		if servers[i], err = normal(servers[i]); err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
	}
	return c, servers, err
}

// Check returns an error for invalid settings.
func (c Common) Check() error { return cmp.Or(c.TLS.Check(), c.Lease.Check()) }

// Place is where an engine keeps its queues. The zero value is none.
type Place struct{ key, space string }

// NewPlace is a namespace on servers, in any order. The key is that of engines with the same
// settings, and reveals no secret.
func NewPlace(engine, namespace string, servers []string, settings any) Place {
	all, _ := json.Marshal(settings) // texts and numbers always marshal
	servers = slices.Compact(slices.Sorted(slices.Values(servers)))
	return Place{
		key:   fmt.Sprintf("%s:%s:%x", engine, namespace, sha256.Sum256(all)),
		space: fmt.Sprintf("%s:%s:%s", engine, namespace, strings.Join(servers, ",")),
	}
}

// Where implements [serialize.EngineModule]. Settings such as ttl or username lead to separate
// engines, each with a lease, but the queues are those of the servers.
func (p *Place) Where(string) (key, space string) { return p.key, p.space }

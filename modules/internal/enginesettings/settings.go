// Package enginesettings is what the settings of engines that keep queues on a server have
// in common.
package enginesettings

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

// Lease are settings of all engines that keep queues on a server.
type Lease struct {
	// Begins the names of all keys, where the server has keys. Handlers with different
	// namespaces have different queues. Default: `orderly`.
	Namespace string `json:"namespace,omitempty"`

	// How long the others wait for a Caddy that died or is cut off, as a duration of
	// whole seconds, `2s` to `1h`. 0 means the default. Default: `10s`.
	TTL caddy.Duration `json:"ttl,omitempty"`
}

const (
	wantNamespace = "1 to 200 bytes without spaces"
	wantTTL       = "whole seconds from 2s to 1h, such as 10s"
)

// WithLease adds [Lease] to the settings of an engine.
func WithLease[T any](of func(T) *Lease, settings directive.Settings[T]) directive.Settings[T] {
	return append(settings,
		directive.OptionalText("namespace", wantNamespace, func(e T) *string { return &of(e).Namespace }),
		directive.Setting[T]{Name: "ttl", Parse: func(e T, d *caddyfile.Dispenser) error {
			text, err := directive.Value(d, wantTTL)
			if err == nil {
				of(e).TTL, err = directive.DurationOf(d, "ttl", text, 0)
			}
			return err
		}})
}

// Check returns an error for invalid settings.
func (l Lease) Check() error {
	bad := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }
	if strings.Trim(l.Namespace, "/") == "" || len(l.Namespace) > 200 || strings.ContainsFunc(l.Namespace, bad) {
		return fmt.Errorf("namespace %q: expected %s", l.Namespace, wantNamespace)
	}
	ttl := time.Duration(l.TTL)
	if err := directive.CheckDuration("ttl", ttl, 0); err != nil {
		return err
	}
	if lease.CheckTTL(ttl) != nil || ttl%time.Second != 0 {
		return fmt.Errorf("ttl %s: expected %s", ttl, wantTTL)
	}
	return nil
}

// Setting is a text that may contain placeholders.
type Setting struct {
	Name string
	Text *string
}

// Expand applies defaults, and replaces placeholders here and in other settings. One without a
// value is an error. Braces of another kind may be a part of a password, so the error does not
// show them.
func (l *Lease) Expand(others ...Setting) error {
	l.Namespace, l.TTL = cmp.Or(l.Namespace, "orderly"), cmp.Or(l.TTL, caddy.Duration(lease.DefaultTTL))
	repl := caddy.NewReplacer()
	for _, s := range append(others, Setting{"namespace", &l.Namespace}) {
		var err error
		if *s.Text, err = repl.ReplaceOrErr(*s.Text, true, true); err != nil {
			if !strings.Contains(err.Error(), "{env.") && !strings.Contains(err.Error(), "{file.") {
				err = errors.New("unrecognized placeholder; expected one such as {env.NAME} or {file.PATH}, or \\{ for a brace")
			}
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	return nil
}

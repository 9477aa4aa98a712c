// Package enginesettings is what the settings of engines that keep queues on a server have
// in common.
package enginesettings

import (
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

// WantNamespace says what a namespace must be.
const WantNamespace = "1 to 200 bytes without spaces"

// CheckNamespace returns an error for an invalid namespace.
func CheckNamespace(text string) error {
	bad := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }
	if strings.Trim(text, "/") == "" || len(text) > 200 || strings.ContainsFunc(text, bad) {
		return fmt.Errorf("namespace %q: expected %s", text, WantNamespace)
	}
	return nil
}

// CheckTTL returns an error for an invalid time to live.
func CheckTTL(ttl time.Duration) error {
	if err := directive.CheckDuration("ttl", ttl, 0); err != nil {
		return err
	}
	if lease.CheckTTL(ttl) != nil || ttl%time.Second != 0 {
		return fmt.Errorf("ttl %s: expected whole seconds from 2s to 1h, such as 10s", ttl)
	}
	return nil
}

// TTLSetting is a time to live. Its check is that of the engine.
func TTLSetting[T any](field func(T) *caddy.Duration) directive.Setting[T] {
	return directive.Setting[T]{Name: "ttl", Parse: func(engine T, d *caddyfile.Dispenser) (err error) {
		*field(engine), err = directive.Duration(d, 0)
		return err
	}}
}

// Setting is a text that may contain placeholders.
type Setting struct {
	Name string
	Text *string
}

// Expand replaces the placeholders in settings. One without a value is an error. Braces of another
// kind may be a part of a password, so the error does not show them.
func Expand(settings ...Setting) error {
	repl := caddy.NewReplacer()
	for _, s := range settings {
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

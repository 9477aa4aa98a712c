package engines

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/orderly-http/caddy-orderly/internal/directive"
)

// EngineSetting is the setting engine of a handler, in JSON. [Load] does the rest.
func EngineSetting[T any](field func(T) *json.RawMessage) directive.Setting[T] {
	return directive.Setting[T]{
		Name: "engine", Syntax: "<name> [{ ... }]", Usual: "file",
		Parse: func(handler T, d *caddyfile.Dispenser) error {
			if !d.NextArg() {
				return d.Err("engine: no value; expected a name: " + strings.Join(Names(), ", "))
			}
			name := d.Val()
			if err := CheckName(name); err != nil {
				return d.WrapErr(err)
			}
			module, err := caddyfile.UnmarshalModule(d, Namespace+"."+name)
			if err != nil {
				return err
			}
			var warnings []caddyconfig.Warning
			*field(handler) = caddyconfig.JSONModuleObject(module, "engine", name, &warnings)
			if len(warnings) > 0 {
				return d.Errf("engine %s: %s", name, warnings[0].Message)
			}
			return nil
		},
	}
}

// PathSetting is the setting path of a handler. [ExpandPath] does the rest.
func PathSetting[T any](field func(T) *string) directive.Setting[T] {
	return directive.Setting[T]{
		Name: "path", Syntax: "<directory>", Usual: "`queues` in Caddy's data directory",
		Parse: func(handler T, d *caddyfile.Dispenser) (err error) {
			path := field(handler)
			switch *path, err = directive.Value(d, "a directory"); {
			case err != nil:
				return err
			case strings.TrimSpace(*path) == "":
				return d.Err("path: expected a directory; leave path out for the default, queues in Caddy's data directory")
			case strings.Contains(*path, "{"): // it is known when the configuration is loaded
				return nil
			}
			return directive.In(d, checkPath(*path))
		},
	}
}

// ExpandPath fills in the placeholders of a lock directory's path. An empty one would name
// another directory: `{env.NOPE}/q` is not meant to be `/q`.
func ExpandPath(path string) (string, error) {
	if path == "" {
		if path = filepath.Join(caddy.AppDataDir(), "queues"); !filepath.IsAbs(path) {
			return "", errors.New("path: neither HOME nor XDG_DATA_HOME is set, so there is no default; set path to a directory such as /var/lib/caddy/queues")
		}
		return path, nil
	}
	expanded, err := caddy.NewReplacer().ReplaceOrErr(path, true, true)
	if err != nil {
		return "", fmt.Errorf("path %q: %w; expected placeholders that have a value when the configuration is loaded", path, err)
	}
	return expanded, checkPath(expanded)
}

func checkPath(path string) error {
	if strings.Contains(path, "*") {
		return fmt.Errorf("path %q: expected a directory, which has no *; %s", path, directive.WantMatcher)
	}
	if !filepath.IsAbs(path) {
		return fmt.Errorf("path %q: expected an absolute path, such as /var/lib/caddy/queues; "+
			"a relative one depends on where Caddy is started", path)
	}
	return nil
}

// Package engines opens the engines that keep queues, and shares them between handlers and
// configurations.
package engines

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile"
	"github.com/orderly-http/caddy-orderly/serializer/memory"
)

// Module is a module of the namespace `http.serialize.engines`: a place to
// keep queues. In JSON it is the field `engine` of a handler, with the inline key
// `engine`. In a Caddyfile it is the subdirective
// `engine <name> [{ ... }]`, for which the module implements
// [caddyfile.Unmarshaler].
//
// Each handler of each configuration has its own module, which holds only settings
// and may be provisioned and validated like any other. Handlers share a
// [serializer.Engine] by its key. It lives for as long as a configuration or a request uses
// it. It is then closed, and closes its store.
//
// [serializer.Store] says what a store must do.
type Module interface {
	caddy.Module

	// Where identifies an engine, and the place where queues are kept. Handlers whose modules
	// have the same key share one engine, across sites, servers and reloads. In the same
	// space, a queue of the same name is the same queue, even if the keys differ, because of
	// other settings. path is the handler's lock directory, always by the same name; modules
	// that need none ignore it.
	Where(path string) (key, space string)

	// Open opens the store of an engine. It is called once for all handlers of a key. The
	// log is that of a configuration in use, through reloads.
	Open(path string, log *slog.Logger) (serializer.Store, error)
}

const orderlyModule = "github.com/orderly-http/caddy-orderly"

// Namespace is that of the modules.
const Namespace = "http.serialize.engines"

// otherEngines do not come with the plugin. Each is a Go module of its own.
var otherEngines = []string{"etcd", "postgres", "redis"}

// CheckName refuses the name of an engine that this Caddy does not have.
func CheckName(name string) error {
	if _, err := caddy.GetModule(Namespace + "." + name); err == nil {
		return nil
	}
	if slices.Contains(otherEngines, name) {
		return fmt.Errorf("engine %s is a module of its own, and this Caddy was built without it; in a checkout, run go build ./modules/%s/cmd/caddy; "+
			"elsewhere, xcaddy build --with %s --with %s", name, name, orderlyModule, orderlyModule+"/modules/"+name)
	}
	return fmt.Errorf("engine %s: there is none of this name; expected one of %s", directive.Quoted(name), strings.Join(Names(), ", "))
}

// Names lists the engines that this Caddy was built with.
func Names() (names []string) {
	for _, module := range caddy.GetModules(Namespace) {
		names = append(names, module.ID.Name())
	}
	return names
}

// NameOf is the name of an engine's module, such as file.
func NameOf(module Module) string { return module.CaddyModule().ID.Name() }

// Load loads the engine module of a handler's settings: that of its field EngineRaw, which has
// this value.
func Load(ctx caddy.Context, settings any, raw json.RawMessage) (Module, error) {
	if raw == nil || string(raw) == "null" {
		return File{}, nil
	}
	var named struct {
		Engine string `json:"engine"`
	}
	if err := json.Unmarshal(raw, &named); err == nil && named.Engine != "" {
		if err := CheckName(named.Engine); err != nil {
			return nil, fmt.Errorf("loading engine: %w", err)
		}
	}
	module, err := ctx.LoadModule(settings, "EngineRaw")
	if err != nil {
		return nil, fmt.Errorf("loading engine: %w", err)
	}
	engine, ok := module.(Module)
	if !ok {
		return nil, fmt.Errorf("loading engine: module %T is not an engine", module)
	}
	return engine, nil
}

// File keeps queues as lock files in the handler's `path`, for any number
// of processes on one machine. It is the default.
type File struct{ noOptions }

// CaddyModule returns the Caddy module information.
func (File) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.serialize.engines.file", New: func() caddy.Module { return new(File) }}
}

// Where implements [Module].
func (File) Where(path string) (key, space string) { return "file:" + path, "file:" + path }

// Open implements [Module].
func (File) Open(path string, log *slog.Logger) (serializer.Store, error) {
	return lockfile.Open(path, lockfile.Options{Log: log})
}

// Memory keeps queues in the memory of this process. It needs no directory.
// The handler's `path` and prefix still identify a queue. Other processes do not know
// of its queues.
type Memory struct{ noOptions }

// CaddyModule returns the Caddy module information.
func (Memory) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.serialize.engines.memory", New: func() caddy.Module { return new(Memory) }}
}

// Where implements [Module].
func (Memory) Where(path string) (key, space string) { return "memory:" + path, "memory:" + path }

// Open implements [Module].
func (Memory) Open(path string, _ *slog.Logger) (serializer.Store, error) {
	return memory.New(memory.Options{Path: path}), nil
}

// noOptions is an engine without options. Syntax:
//
//	engine <name>
type noOptions struct{}

// UnmarshalCaddyfile reads the tokens of the engine.
func (noOptions) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // engine name
	name := d.Val()
	if d.NextArg() || d.NextBlock(d.Nesting()) {
		return d.Errf("engine %s: unexpected %s; it has no options", name, directive.Quoted(d.Val()))
	}
	return nil
}

func init() {
	caddy.RegisterModule(File{})
	caddy.RegisterModule(Memory{})
}

// Interface guards
var (
	_ Module                = Memory{}
	_ caddyfile.Unmarshaler = noOptions{}
)

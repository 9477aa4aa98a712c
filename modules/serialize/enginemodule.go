package serialize

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile"
	"github.com/orderly-http/caddy-orderly/serializer/memory"
)

// EngineModule is a module of the namespace `http.serialize.engines`: a place to
// keep queues. In JSON it is the field `engine` of the handler `serialize`, with the
// inline key `engine`. In a Caddyfile it is the subdirective
// `engine <name> [{ ... }]`, for which the module implements
// [caddyfile.Unmarshaler].
//
// Each handler of each configuration has its own module, which holds only settings
// and may be provisioned and validated like any other. Handlers share a
// [serializer.Engine] by Key. It lives for as long as a configuration or a request uses
// it. It is then closed, and closes its store.
//
// [serializer.Store] says what a store must do. A module may also be a [SharedSpace].
type EngineModule interface {
	caddy.Module

	// Key identifies an engine. Handlers whose modules have the same key share
	// one engine, across sites, servers and reloads. path is the handler's lock
	// directory, always by the same name; modules that need none ignore it.
	Key(path string) string

	// Open opens the store of an engine. It is called once for all handlers of a key. The
	// log is that of a configuration in use, through reloads.
	Open(path string, log *slog.Logger) (serializer.Store, error)
}

const (
	engineNamespace = "http.serialize.engines"
	orderlyModule   = "github.com/orderly-http/caddy-orderly"
)

// otherEngines are the Go modules of engines that do not come with the plugin.
var otherEngines = map[string]string{
	"etcd":     orderlyModule + "/modules/etcd",
	"postgres": orderlyModule + "/modules/postgres",
	"redis":    orderlyModule + "/modules/redis",
}

// checkEngineName refuses the name of an engine that this Caddy does not have.
func checkEngineName(name string) error {
	if _, err := caddy.GetModule(engineNamespace + "." + name); err == nil {
		return nil
	}
	if module, ok := otherEngines[name]; ok {
		return fmt.Errorf("engine %s is a module of its own, and this Caddy was built without it; in a checkout, run go build ./modules/%s/cmd/caddy; "+
			"elsewhere, xcaddy build --with %s --with %s", name, name, orderlyModule, module)
	}
	return fmt.Errorf("engine %s: there is none of this name; expected one of %s", directive.Quoted(name), strings.Join(engineNames(), ", "))
}

// engineNames lists the engines that this Caddy was built with.
func engineNames() (names []string) {
	for _, module := range caddy.GetModules(engineNamespace) {
		names = append(names, module.ID.Name())
	}
	return names
}

// nameOf is the name of an engine's module, such as file.
func nameOf(module EngineModule) string { return module.CaddyModule().ID.Name() }

// loadEngine loads the engine module of the settings.
func (s *Handler) loadEngine(ctx caddy.Context) (EngineModule, error) {
	if s.EngineRaw == nil || string(s.EngineRaw) == "null" {
		return FileEngine{}, nil
	}
	var named struct {
		Engine string `json:"engine"`
	}
	if err := json.Unmarshal(s.EngineRaw, &named); err == nil && named.Engine != "" {
		if err := checkEngineName(named.Engine); err != nil {
			return nil, fmt.Errorf("loading engine: %w", err)
		}
	}
	module, err := ctx.LoadModule(s, "EngineRaw")
	if err != nil {
		return nil, fmt.Errorf("loading engine: %w", err)
	}
	engine, ok := module.(EngineModule)
	if !ok {
		return nil, fmt.Errorf("loading engine: module %T is not an engine", module)
	}
	return engine, nil
}

// SharedSpace is for an EngineModule whose engines may keep the same queues
// even if their keys differ, because only other settings differ, not the
// place.
type SharedSpace interface {
	// Space identifies the place where queues are kept. In the same space, a
	// queue of the same name is the same queue. Without this method, the key
	// identifies the place.
	Space(path string) string
}

// spaceOf is where a module's queues are kept.
func spaceOf(module EngineModule, path string) string {
	if shared, ok := module.(SharedSpace); ok {
		return shared.Space(path)
	}
	return module.Key(path)
}

// FileEngine keeps queues as lock files in the handler's `path`, for any number
// of processes on one machine. It is the default.
type FileEngine struct{ noOptions }

// CaddyModule returns the Caddy module information.
func (FileEngine) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.serialize.engines.file",
		New: func() caddy.Module { return new(FileEngine) },
	}
}

// Key implements [EngineModule].
func (FileEngine) Key(path string) string { return "file:" + path }

// Open implements [EngineModule].
func (FileEngine) Open(path string, log *slog.Logger) (serializer.Store, error) {
	return lockfile.Open(path, lockfile.Options{Log: log})
}

// MemoryEngine keeps queues in the memory of this process. It needs no directory.
// The handler's `path` and prefix still identify a queue. Other processes do not know
// of its queues.
type MemoryEngine struct{ noOptions }

// CaddyModule returns the Caddy module information.
func (MemoryEngine) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.serialize.engines.memory",
		New: func() caddy.Module { return new(MemoryEngine) },
	}
}

// Key implements [EngineModule].
func (MemoryEngine) Key(path string) string { return "memory:" + path }

// Open implements [EngineModule].
func (MemoryEngine) Open(path string, _ *slog.Logger) (serializer.Store, error) {
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

// Interface guards
var (
	_ EngineModule          = FileEngine{}
	_ EngineModule          = MemoryEngine{}
	_ caddyfile.Unmarshaler = noOptions{}
)

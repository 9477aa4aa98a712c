package serialize_test

import (
	"fmt"
	"log/slog"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/orderly-http/caddy-orderly/modules/serialize"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/memory"
)

// LoggingEngine is a custom engine: queues in memory, with a line in the log
// when they are set up. In a Caddyfile it is:
//
//	serialize {
//		engine logging <name>
//	}
type LoggingEngine struct {
	// The name of the queues in the log.
	Name string `json:"name,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (LoggingEngine) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.serialize.engines.logging",
		New: func() caddy.Module { return new(LoggingEngine) },
	}
}

// UnmarshalCaddyfile reads the name.
func (e *LoggingEngine) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // engine name
	if !d.AllArgs(&e.Name) {
		return d.ArgErr()
	}
	return nil
}

// Key makes handlers of one name share their queues.
func (e *LoggingEngine) Key(string) string { return "logging:" + e.Name }

// Open opens the store, once for all handlers of a key.
func (e *LoggingEngine) Open(_ string, log *slog.Logger) (serializer.Store, error) {
	log.Info("setting up queues", "name", e.Name)
	return memory.New(memory.Options{Path: e.Name}), nil
}

// An engine is a module of Caddy that implements [serialize.EngineModule].
func ExampleEngineModule() {
	caddy.RegisterModule(LoggingEngine{}) // in an init, as a rule

	var engine serialize.EngineModule = &LoggingEngine{Name: "mine"}
	fmt.Println(engine.Key("/tmp"))

	// Output:
	// logging:mine
}

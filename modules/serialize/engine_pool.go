package serialize

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// EngineModule is a module of the namespace `http.serialize.engines`: a way to
// keep the order of queues. In JSON it is the field `engine` of the handler
// `serialize`, with the inline key `engine`; in a Caddyfile it is the
// subdirective `engine <name> [{ ... }]`, for which the module implements
// [caddyfile.Unmarshaler].
//
// Modules are made for each handler and each configuration, engines are not: they
// are shared by Key, live for as long as a configuration or a request uses them,
// and are closed after that. So a module holds settings only, and may be
// provisioned and validated as any other.
//
// What the engine itself has to do is said by [serializer.Engine]. A module may
// also be a [SharedSpace], and its engine a [serializer.Counter].
type EngineModule interface {
	// Key tells engines apart. Handlers whose engines have the same key share
	// one engine: across sites, servers and reloads. path is the handler's
	// lock directory, always by the same name; engines that need none ignore it.
	Key(path string) string

	// Open makes the engine. It is called once for all handlers of a key.
	// The logger is that of the handler which came first.
	Open(path string, log *slog.Logger) (serializer.Engine, error)
}

const (
	engineNamespace = "http.serialize.engines"
	orderlyModule   = "github.com/orderly-http/caddy-orderly"
)

// otherEngines are the Go modules of engines that do not come with the plugin.
var otherEngines = map[string]string{"etcd": orderlyModule + "/modules/etcd"}

// checkEngineName refuses the name of an engine that this Caddy does not have.
func checkEngineName(name string) error {
	if _, err := caddy.GetModule(engineNamespace + "." + name); err == nil {
		return nil
	}
	if module, ok := otherEngines[name]; ok {
		return fmt.Errorf("engine %s is a module of its own, and this Caddy was built without it; build one with it: xcaddy build --with %s --with %s",
			name, orderlyModule, module)
	}
	return fmt.Errorf("engine %q: there is none of this name; expected one of %s", name, strings.Join(engineNames(), ", "))
}

// engineNames lists the engines that this Caddy was built with.
func engineNames() (names []string) {
	for _, module := range caddy.GetModules(engineNamespace) {
		names = append(names, module.ID.Name())
	}
	return names
}

// SharedSpace is for an EngineModule whose engines may keep the same queues
// though their keys differ: by other settings, not in another place.
type SharedSpace interface {
	// Space tells apart where queues are kept. In the same space, a queue of the
	// same name is the same queue. Without it, the key does.
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
type FileEngine struct{}

// CaddyModule returns the Caddy module information.
func (FileEngine) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.serialize.engines.file",
		New: func() caddy.Module { return new(FileEngine) },
	}
}

// UnmarshalCaddyfile sets up the engine from Caddyfile tokens. Syntax:
//
//	engine file
func (FileEngine) UnmarshalCaddyfile(d *caddyfile.Dispenser) error { return noOptions(d) }

// Key implements [EngineModule].
func (FileEngine) Key(path string) string { return "file:" + path }

// Open implements [EngineModule].
func (FileEngine) Open(path string, log *slog.Logger) (serializer.Engine, error) {
	return serializer.OpenFile(path, serializer.FileOptions{Log: log})
}

// MemoryEngine keeps queues in the memory of this process. It needs no
// directory; other processes know nothing of its queues, which are still told
// apart by the handler's `path` and prefix.
type MemoryEngine struct{}

// CaddyModule returns the Caddy module information.
func (MemoryEngine) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.serialize.engines.memory",
		New: func() caddy.Module { return new(MemoryEngine) },
	}
}

// UnmarshalCaddyfile sets up the engine from Caddyfile tokens. Syntax:
//
//	engine memory
func (MemoryEngine) UnmarshalCaddyfile(d *caddyfile.Dispenser) error { return noOptions(d) }

// Key implements [EngineModule].
func (MemoryEngine) Key(path string) string { return "memory:" + path }

// Open implements [EngineModule].
func (MemoryEngine) Open(path string, _ *slog.Logger) (serializer.Engine, error) {
	return serializer.NewMemory(serializer.MemoryOptions{Path: path}), nil
}

func noOptions(d *caddyfile.Dispenser) error {
	d.Next() // engine name
	name := d.Val()
	if d.NextArg() || d.NextBlock(d.Nesting()) {
		return d.Errf("engine %s: unexpected %q; it has no options", name, d.Val())
	}
	return nil
}

// enginePool holds the engines in use. They outlive configurations: a reload
// must not break the order, and requests of the old configuration still wait
// and work while the new one serves.
var enginePool = caddy.NewUsagePool()

// sharedEngine is an engine in the pool.
type sharedEngine struct {
	serializer.Engine
	key   string
	path  string // by which it was opened; empty in tests
	space string // where it keeps its queues

	mu         sync.Mutex
	configured map[configuredQueue]int // how many handlers use it
}

// configuredQueue is a queue whose name is known beforehand, as one handler has
// it.
type configuredQueue struct {
	name  string
	limit int // how many may be inside; 0 is no limit
}

// configure notes that a handler uses a queue, or by -1 that it no longer does.
func (e *sharedEngine) configure(queue configuredQueue, by int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.configured == nil {
		e.configured = make(map[configuredQueue]int)
	}
	e.configured[queue] += by
	if e.configured[queue] == 0 {
		delete(e.configured, queue)
	}
}

// limits are the limits of the queues whose names are known. Where handlers
// differ, it is the widest.
func (e *sharedEngine) limits() map[string]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	limits := make(map[string]int, len(e.configured))
	for queue := range e.configured {
		limit, again := limits[queue.name]
		if !again {
			limit = queue.limit
		}
		limits[queue.name] = serializer.Wider(limit, queue.limit)
	}
	return limits
}

// Queues implements [serializer.Engine]. It lists the queues of the
// configuration, too, though nobody may be in them.
func (e *sharedEngine) Queues(ctx context.Context) ([]serializer.QueueState, error) {
	states, err := e.Engine.Queues(ctx)
	if err != nil {
		return nil, err
	}
	path := e.Path()
	for i := range states {
		states[i].Path = cmp.Or(states[i].Path, path)
	}
	states = e.withConfigured(localQueues.list(e, path, states), path)
	describeRequests(states)
	slices.SortFunc(states, func(a, b serializer.QueueState) int { return cmp.Compare(a.Prefix, b.Prefix) })
	return states, nil
}

// withConfigured adds the queues of the configuration, and their limits.
func (e *sharedEngine) withConfigured(states []serializer.QueueState, path string) []serializer.QueueState {
	limits := e.limits()
	for i, state := range states {
		if limit, ok := limits[state.Prefix]; ok {
			states[i].Limit = limit
			delete(limits, state.Prefix)
		}
	}
	for queue, limit := range limits { // those with nobody in them
		states = append(states, serializer.QueueState{Path: path, Prefix: queue, Limit: limit})
	}
	return states
}

// describeRequests asks what the tickets of this process are for.
func describeRequests(states []serializer.QueueState) {
	for _, state := range states {
		for i := range state.Tickets {
			if t := &state.Tickets[i]; t.Requester != nil {
				t.Request = new(t.Requester.Request())
			}
		}
	}
}

// Path implements [serializer.Engine]. An engine whose place has no name goes by
// its key.
func (e *sharedEngine) Path() string { return cmp.Or(e.Engine.Path(), e.key) }

// unreadable lists the queues of an engine that cannot be read: those of the
// configuration, or one without a name where none is known.
func (e *sharedEngine) unreadable(err error) (queues []listedQueue) {
	path, limits := e.Path(), e.limits()
	if len(limits) == 0 {
		limits[""] = 0
	}
	for prefix, limit := range limits {
		state := withTickets(serializer.QueueState{Path: path, Prefix: prefix, Limit: limit})
		queues = append(queues, listedQueue{QueueState: state, Error: err.Error(), engines: []*sharedEngine{e}, failure: err})
	}
	return queues
}

// Evict implements [serializer.Engine].
func (e *sharedEngine) Evict(ctx context.Context, queue string, token uint64) error {
	if localQueues.evict(e, queue, token) {
		return nil
	}
	return e.Engine.Evict(ctx, queue, token)
}

// Close implements [serializer.Engine].
func (e *sharedEngine) Close() error {
	localQueues.refuseAll(e, serializer.ErrClosed)
	return e.Engine.Close()
}

// Destruct implements [caddy.Destructor].
func (e *sharedEngine) Destruct() error { return e.Close() }

// engineRef is one handler's hold on a shared engine: one for the handler's
// configuration, and one for each of its requests. The engine goes back to the
// pool with the last of them.
type engineRef struct {
	*sharedEngine
	directory directory
	refs      atomic.Int64
}

// openEngine takes an engine out of the pool, or makes it.
func openEngine(module EngineModule, path string, log *slog.Logger) (*engineRef, error) {
	at := resolveDirectory(path)
	key := module.Key(at.path)
	value, _, err := enginePool.LoadOrNew(key, func() (caddy.Destructor, error) {
		engine, err := module.Open(at.path, log)
		if err != nil {
			return nil, err
		}
		return &sharedEngine{Engine: engine, key: key, path: at.path, space: spaceOf(module, at.path)}, nil
	})
	if err != nil {
		return nil, fmt.Errorf("opening engine: %w", err)
	}
	ref := &engineRef{sharedEngine: value.(*sharedEngine), directory: at}
	ref.refs.Store(1)
	return ref, nil
}

// acquire adds a reference, unless there is none any more.
func (e *engineRef) acquire() bool {
	for {
		n := e.refs.Load()
		if n == 0 {
			return false
		}
		if e.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// release drops a reference.
func (e *engineRef) release() error {
	if e.refs.Add(-1) > 0 {
		return nil
	}
	if _, err := enginePool.Delete(e.key); err != nil {
		return fmt.Errorf("closing engine: %w", err)
	}
	return nil
}

// defaultPath is where lock files lie if the configuration does not say.
func defaultPath() string { return os.TempDir() }

// Interface guards
var (
	_ EngineModule          = FileEngine{}
	_ EngineModule          = MemoryEngine{}
	_ caddyfile.Unmarshaler = FileEngine{}
	_ caddyfile.Unmarshaler = MemoryEngine{}
	_ caddy.Destructor      = (*sharedEngine)(nil)
)

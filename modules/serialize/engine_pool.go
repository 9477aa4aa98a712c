package serialize

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/engineswitch"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueapi"
	"github.com/orderly-http/caddy-orderly/serializer"
)

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

	places placeReader // for the waiting page

	mu         sync.Mutex
	configured map[configuredQueue]int // how many handlers use each
}

// configuredQueue is a queue whose name is known beforehand, as one handler has it, or
// all queues of a prefix with placeholders.
type configuredQueue struct {
	name  string
	limit int  // how many may be inside; 0 is no limit
	group bool // the name is a prefix with placeholders
}

// configure adds by to the number of handlers that use a queue.
func (e *sharedEngine) configure(queue configuredQueue, by int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.configured == nil {
		e.configured = make(map[configuredQueue]int)
	}
	if e.configured[queue] += by; e.configured[queue] == 0 {
		delete(e.configured, queue)
	}
}

// configured is the handler's queue, or all queues of its prefix.
func (s *Handler) configured() configuredQueue {
	limit := s.rule.Capacity()
	if len(s.SharedMethods) > 0 {
		limit = s.shared.Capacity()
	}
	if s.placeholders {
		return configuredQueue{name: s.Prefix, limit: limit, group: true}
	}
	return configuredQueue{name: s.queue, limit: limit}
}

// limits are the limits of the queues whose names are known. If handlers
// differ, it is the widest.
func (e *sharedEngine) limits() map[string]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	limits := make(map[string]int, len(e.configured))
	for queue := range e.configured {
		if queue.group {
			continue
		}
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
	states = e.withConfigured(engineswitch.List(e, path, states), path)
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

// describeRequests adds the requests to the tickets of this process.
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
// configuration, or one without a name if none is known.
func (e *sharedEngine) unreadable(err error) (queues []listedQueue) {
	path, limits := e.Path(), e.limits()
	if len(limits) == 0 {
		limits[""] = 0
	}
	for prefix, limit := range limits {
		state := withTickets(serializer.QueueState{Path: path, Prefix: prefix, Limit: limit})
		queues = append(queues, listedQueue{Queue: queueapi.Queue{QueueState: state, Error: err.Error()}, engines: []*sharedEngine{e}, failure: err})
	}
	return queues
}

// Evict implements [serializer.Engine].
func (e *sharedEngine) Evict(ctx context.Context, queue string, token uint64) error {
	if engineswitch.Evict(e, queue, token) {
		return nil
	}
	return e.Engine.Evict(ctx, queue, token)
}

// Close implements [serializer.Engine].
func (e *sharedEngine) Close() error {
	engineswitch.RefuseAll(e, serializer.ErrClosed)
	return e.Engine.Close()
}

// Destruct implements [caddy.Destructor].
func (e *sharedEngine) Destruct() error { return e.Close() }

// engineRef counts one handler's references to a shared engine: one for the handler's
// configuration, and one for each of its requests. The last one releases the engine.
type engineRef struct {
	*sharedEngine
	directory directory
	refs      atomic.Int64
}

// openEngine returns an engine of the pool, which opens it if necessary.
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

// acquire adds a reference, unless the last one was dropped.
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

// acquireEngine returns the engine with a reference for one request. The handler's
// own reference may be gone already, since requests may arrive late during a
// reload.
func (s *Handler) acquireEngine() (*engineRef, error) {
	if s.engine.acquire() {
		return s.engine, nil
	}
	return openEngine(s.module, s.Path, s.ctx.Slogger())
}

// releaseEngine drops a request's reference to an engine.
func (s *Handler) releaseEngine(engine *engineRef) {
	if err := engine.release(); err != nil {
		s.logger.Error("releasing an engine", zap.String("path", s.Path), zap.Error(err))
	}
}

// Interface guards
var _ caddy.Destructor = (*sharedEngine)(nil)

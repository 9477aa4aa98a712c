package serialize

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueapi"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// enginePool holds the engines in use. They outlive configurations: a reload
// must not break the order, and requests of the old configuration still wait
// and work while the new one serves.
var enginePool = caddy.NewUsagePool()

// sharedEngine is an engine in the pool.
type sharedEngine struct {
	*serializer.Engine
	engineIdentity
	key  string
	path string // by which it was opened; empty in tests

	places placeReader // for the waiting page
	rivals rivals

	mu         sync.Mutex
	configured map[configuredQueue]int // how many handlers use each
}

// configuredQueue is a queue whose name is known beforehand, as one handler has it, or
// all queues of a prefix with placeholders.
type configuredQueue struct {
	name  string
	limit int  // how many may be inside; 0 is no limit
	many  bool // the prefix has placeholders; the name is that of queueStart
}

// queueStart is what the names of all queues of a prefix with placeholders begin with.
func queueStart(prefix string) string {
	start, _, _ := strings.Cut(prefix, "{")
	return serializer.QueueName(start)
}

// covers reports whether the queue is one of the handler's.
func (q configuredQueue) covers(queue string) bool {
	return queue == q.name || q.many && strings.HasPrefix(queue, q.name)
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
		return configuredQueue{name: queueStart(s.Prefix), limit: limit, many: true}
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
		if queue.many {
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

// Queues lists the engine's queues, and those of the configuration, too, though nobody may
// be in them.
func (e *sharedEngine) Queues(ctx context.Context) ([]serializer.QueueState, error) {
	states, err := e.Engine.Queues(ctx)
	if err != nil {
		return nil, err
	}
	states = e.withConfigured(states)
	describeRequests(states)
	slices.SortFunc(states, func(a, b serializer.QueueState) int { return cmp.Compare(a.Prefix, b.Prefix) })
	return states, nil
}

// withConfigured adds the queues of the configuration, and their limits.
func (e *sharedEngine) withConfigured(states []serializer.QueueState) []serializer.QueueState {
	limits := e.limits()
	for i, state := range states {
		if limit, ok := limits[state.Prefix]; ok {
			states[i].Limit = limit
			delete(limits, state.Prefix)
		}
	}
	listed := states
	for queue, limit := range limits { // those with nobody in them
		states = append(states, serializer.QueueState{Path: e.Path(), Prefix: queue, Limit: limit, PausedUntil: pauseOf(listed, queue)})
	}
	return states
}

// pauseOf is the end of the last pause with a * that applies to a queue which nobody is
// in, or nil. A list has such a pause as a queue of its own.
func pauseOf(states []serializer.QueueState, queue string) (end *time.Time) {
	for _, state := range states {
		if state.PausedUntil != nil && queueapi.Matches(state.Prefix, queue) && (end == nil || state.PausedUntil.After(*end)) {
			end = state.PausedUntil
		}
	}
	return end
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

// Destruct implements [caddy.Destructor].
func (e *sharedEngine) Destruct() error { return e.Close() }

// engineRef counts one handler's references to a shared engine: one for the handler's
// configuration, and one for each of its requests. The last one releases the engine.
type engineRef struct {
	*sharedEngine
	directory string   // of the handler
	names     []string // of the directory: as the handler has it, and the engine's
	refs      atomic.Int64
}

// openEngine returns an engine of the pool, which opens it if necessary.
func openEngine(module EngineModule, path string, log *slog.Logger) (*engineRef, error) {
	directory := resolveDirectory(path)
	key := module.Key(directory)
	value, _, err := enginePool.LoadOrNew(key, func() (caddy.Destructor, error) {
		store, err := module.Open(directory, log)
		if err != nil {
			return nil, err
		}
		engine := serializer.New(store, serializer.Options{Log: log})
		return &sharedEngine{Engine: engine, engineIdentity: identify(module, directory), key: key, path: directory}, nil
	})
	if err != nil {
		return nil, fmt.Errorf("opening engine: %w", err)
	}
	ref := &engineRef{sharedEngine: value.(*sharedEngine), directory: directory, names: directoryNames(path)}
	ref.refs.Store(1)
	ref.meetRivals()
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

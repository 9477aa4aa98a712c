package serialize

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/modules/internal/engines"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queuename"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/telemetry"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/waitingpage"
)

// registry has what outlives a configuration beside its engines: what was counted for each
// prefix, and which handlers use which queues.
type registry struct {
	prefixes sync.Map         // *knownPrefix, by prefix
	handlers sync.Map         // the keys are *Handler, of all configurations, until they end
	browsers waitingpage.Book // that wait without a connection
}

var registered registry

// EngineModule is a module of the namespace `http.serialize.engines`: a place to keep queues. In
// a Caddyfile it is the subdirective `engine <name> [{ ... }]`, for which the module implements
// caddyfile.Unmarshaler.
type EngineModule = engines.Module

// handlersWhere lists the handlers that a condition holds for.
func (r *registry) handlersWhere(holds func(*Handler) bool) (found []*Handler) {
	for s := range r.handlers.Range {
		if s := s.(*Handler); holds(s) {
			found = append(found, s)
		}
	}
	return found
}

// prefixOf returns what is known of a prefix. Its counters are kept for as long as the process runs, so
// that counters never fall.
func (r *registry) prefixOf(prefix string) *knownPrefix {
	parsed, _ := queuename.Parse(prefix)
	s, _ := r.prefixes.LoadOrStore(prefix, &knownPrefix{telemetry.NewCounters(prefix), parsed})
	return s.(*knownPrefix)
}

// sample records every few seconds what the queues of all prefixes are like, for the picture on the
// status page. It begins with the first handler, and goes on for as long as the process runs.
var sample = sync.OnceFunc(func() {
	go func() {
		for range time.Tick(telemetry.SampleInterval) {
			for _, prefix := range registered.allPrefixes() {
				prefix.Sample()
			}
		}
	}()
})

// forgetPrefix forgets a prefix for which nothing was counted.
func (r *registry) forgetPrefix(prefix string) {
	if s, ok := r.prefixes.Load(prefix); ok && !s.(*knownPrefix).isUsed() && s.(*knownPrefix).Forget() {
		r.prefixes.Delete(prefix)
	}
}

// allPrefixes are the known prefixes, in order.
func (r *registry) allPrefixes() (all []*knownPrefix) {
	for _, s := range r.prefixes.Range {
		all = append(all, s.(*knownPrefix))
	}
	slices.SortFunc(all, func(a, b *knownPrefix) int { return strings.Compare(a.Prefix, b.Prefix) })
	return all
}

// checkEngineChange refuses another engine for a queue that another line of the
// configuration has, or that is in use.
func (s *Handler) checkEngineChange(l *engines.Loading) error {
	name, directory := engines.NameOf(s.module), engines.Resolve(s.Path)
	for _, rival := range engines.RivalsOf(name, directory) {
		sameLoad := func(other *Handler) bool {
			return other.engine.Shared == rival && other.ctx.Done() == s.ctx.Done() && other.prefix.CanBe(s.prefix.Names)
		}
		if others := registered.handlersWhere(sameLoad); len(others) > 0 {
			return fmt.Errorf("engine %s: prefix %q can mean the same queue as %q, which another line keeps in %s by engine %s; give one of them another prefix or path",
				name, s.Prefix, others[0].Prefix, directory, rival.Name)
		}
		for _, state := range l.QueuesOf(rival) {
			// One is inside, or may enter. In a paused queue, they wait until they are refused.
			if s.prefix.CanBe(state.Prefix) && (state.Inside > 0 || state.Waiting > 0 && state.PausedUntil == nil) {
				return fmt.Errorf("engine %s: queue %q in %s has %d inside and %d waiting by engine %s; "+
					"pause the queue, wait until nobody is inside, and load the configuration again",
					name, state.Prefix, directory, state.Inside, state.Waiting, rival.Name)
			}
		}
	}
	return nil
}

// warnLeftOut names the queues of a handler that ends which have requests of this process,
// or a pause, and which no other handler has. Somebody may have edited a path or a prefix.
func (s *Handler) warnLeftOut() {
	for _, state := range s.engine.Known(s.prefix.CanBe) { // the server may be silent
		inside, waiting := s.engine.Count(state.Prefix)
		paused := state.PausedUntil != nil
		if inside+waiting == 0 && !paused || has(s.engine.Shared, state.Prefix) {
			continue
		}
		s.report.Logger.Warn("the new configuration does not have a queue that is in use or paused; another engine, server, namespace, path or prefix is another queue, "+
			"which is not paused, and does not wait for requests of this one", zap.String("path", s.engine.Path()), zap.String("queue", state.Prefix),
			zap.Int("inside", inside), zap.Int("waiting", waiting), zap.Bool("paused", paused))
	}
}

// has reports whether a handler has a queue of the engine, or one of those of a name that
// ends in *.
func has(e *engines.Shared, name string) bool {
	return len(registered.handlersWhere(func(s *Handler) bool { return s.engine.Shared == e && s.prefix.CanBe(name) })) > 0
}

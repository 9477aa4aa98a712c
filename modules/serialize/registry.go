package serialize

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queuename"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/telemetry"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/waitingpage"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// registry has what outlives a configuration: the engines, what was counted for each prefix, and
// which handlers use which queues. A reload must not break the order of a queue, and requests of
// the old configuration still wait and work while the new one serves.
type registry struct {
	engines  *caddy.UsagePool // of *sharedEngine, by key
	loading  sync.Mutex       // guards latest
	latest   *load            // of a configuration, which may be over
	opening  sync.Mutex       // held while one is found or opened: two names of a directory must not have two
	opened   sync.Map         // the keys are those engines: the pool cannot be read while one is being opened
	closing  sync.WaitGroup   // engines that nobody uses any more
	counts   sync.Map         // *atomic.Int32, by directory: how many of these engines are open
	prefixes sync.Map         // *knownPrefix, by prefix
	handlers sync.Map         // the keys are *Handler, of all configurations, until they end
	browsers waitingpage.Book // that wait without a connection
}

var registered = registry{engines: caddy.NewUsagePool()}

// covers reports whether a queue is one of the handler's.
func (s *Handler) covers(queue string) bool { return serializer.Matches(s.prefix.Names, queue) }

// overlap reports whether a queue may have both names, of which each may end in *.
func overlap(a, b string) bool {
	return serializer.Matches(a, strings.TrimSuffix(b, "*")) || serializer.Matches(b, strings.TrimSuffix(a, "*"))
}

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
	s, ok := r.prefixes.Load(prefix)
	if !ok {
		parsed, _ := queuename.Parse(prefix)
		s, _ = r.prefixes.LoadOrStore(prefix, &knownPrefix{telemetry.NewCounters(prefix), parsed})
	}
	return s.(*knownPrefix)
}

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

// openEngines are the engines in use, in the order of their keys. No lock is held while they
// are asked: an engine whose disk hangs must not keep configurations from loading.
func (r *registry) openEngines() (engines []*sharedEngine) {
	for e := range r.opened.Range {
		engines = append(engines, e.(*sharedEngine))
	}
	slices.SortFunc(engines, func(a, b *sharedEngine) int { return strings.Compare(a.key, b.key) })
	return engines
}

// close closes all engines at once, since the process ends.
func (r *registry) close() {
	askAll(r.openEngines(), (*sharedEngine).Close) // which never fails
	r.closing.Wait()
}

// askAll asks engines at once: those that do not answer take the time of one.
func askAll[T any](engines []*sharedEngine, ask func(*sharedEngine) T) []T {
	answers := make([]T, len(engines))
	var asked sync.WaitGroup
	for i, e := range engines {
		asked.Go(func() { answers[i] = ask(e) })
	}
	asked.Wait()
	return answers
}

// lists are the lists of the engines that have names, or with nil of all, in the order of keys.
func (r *registry) lists(ctx context.Context, names map[*sharedEngine]string) []*listedQueue {
	engines := slices.DeleteFunc(r.openEngines(), func(e *sharedEngine) bool { return names != nil && names[e] == "" })
	return slices.Concat(askAll(engines, func(e *sharedEngine) []*listedQueue { return e.listQueues(ctx) })...)
}

// open returns an engine for a handler's directory, which it opens if necessary.
func (r *registry) open(module EngineModule, path string, log *slog.Logger) (*engineRef, error) {
	r.opening.Lock()
	defer r.opening.Unlock()
	directory := r.resolve(path)
	key := module.Key(directory)
	value, _, err := r.engines.LoadOrNew(key, func() (caddy.Destructor, error) {
		output := &forwarder{log.Handler()}
		store, err := module.Open(directory, slog.New(output))
		if err != nil {
			return nil, err
		}
		engine := serializer.New(store, serializer.Options{Log: slog.New(output)})
		count, _ := r.counts.LoadOrStore(directory, new(atomic.Int32))
		count.(*atomic.Int32).Add(1)
		return &sharedEngine{
			Engine: engine, output: output, key: key, name: nameOf(module), space: spaceOf(module, directory), directory: directory,
			store: store, inDirectory: count.(*atomic.Int32), places: waitingpage.Places{Engine: engine},
		}, nil
	})
	if err != nil {
		return nil, fmt.Errorf("opening engine: %w", err)
	}
	r.opened.Store(value, true)
	ref := &engineRef{sharedEngine: value.(*sharedEngine), module: module, path: path, log: log}
	ref.refs.Store(1)
	return ref, nil
}

// resolve returns the path by which an engine is open for a directory, or else the path itself.
// The path may be a symbolic link, a bind mount or differ in case. An engine that was opened by
// the same path comes first: it knows who is inside, wherever the path leads now.
func (r *registry) resolve(path string) string {
	path = filepath.Clean(path)
	found := path
	for _, open := range r.openEngines() {
		if open.directory == path {
			return path
		}
		if found == path && sameDirectory(open.directory, path) {
			found = open.directory
		}
	}
	return found
}

func sameDirectory(a, b string) bool {
	first, err := os.Stat(a)
	if err != nil {
		return realPath(a) == realPath(b)
	}
	second, err := os.Stat(b)
	return err == nil && os.SameFile(first, second)
}

// realPath resolves the symbolic links of a path. Its missing end is kept, since it is
// created there later.
func realPath(path string) string {
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		return real
	}
	parent := filepath.Dir(path)
	if parent == path {
		return path
	}
	return filepath.Join(realPath(parent), filepath.Base(path))
}

// sharedEngine is an engine that handlers share.
type sharedEngine struct {
	*serializer.Engine
	output      *forwarder
	key         string
	name        string // of its module, such as file
	space       string // where it keeps its queues
	directory   string // by which it was opened
	store       serializer.Store
	unwanted    atomic.Bool        // its configuration is rejected, so nothing of it may stay
	examined    atomic.Bool        // a load has asked whether its servers are suitable
	inDirectory *atomic.Int32      // how many engines are open there
	places      waitingpage.Places // of browsers that wait without a connection
}

// Places implements [waitingpage.Engine].
func (e *sharedEngine) Places() *waitingpage.Places { return &e.places }

// Destruct implements [caddy.Destructor]. It does not wait for servers: a reload may leave
// many engines out whose server is silent.
func (e *sharedEngine) Destruct() error {
	registered.opened.Delete(e)
	if store, ok := e.store.(interface{ Discard() }); ok && e.unwanted.Load() {
		store.Discard()
	}
	end := func() {
		defer e.inDirectory.Add(-1)
		_ = e.Close() // which never fails
	}
	if _, hasServers := e.store.(serializer.Lease); hasServers {
		registered.closing.Go(end)
	} else {
		end()
	}
	return nil
}

// listPatience is how long an engine may take to say who is in its queues. If its server is
// silent, other engines are listed, and configurations are loaded: a new one may replace it.
const listPatience = time.Second

var errSilent = fmt.Errorf("no answer within %s", listPatience)

// Queues is that of the engine, with less patience.
func (e *sharedEngine) Queues(ctx context.Context) ([]serializer.QueueState, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, listPatience, errSilent)
	defer cancel()
	return e.Engine.Queues(ctx)
}

// engineRef counts one handler's references to an engine: one for its configuration, and one for
// each of its requests. The last one releases the engine.
type engineRef struct {
	*sharedEngine
	module EngineModule
	path   string
	log    *slog.Logger
	refs   atomic.Int64
}

// acquire adds a reference for one request. The last one may be gone already, since
// requests may arrive late during a reload; then the engine is opened again.
func (e *engineRef) acquire() (*engineRef, error) {
	for {
		n := e.refs.Load()
		if n == 0 {
			return registered.open(e.module, e.path, e.log)
		}
		if e.refs.CompareAndSwap(n, n+1) {
			return e, nil
		}
	}
}

// Release drops a reference.
func (e *engineRef) Release() {
	if e.refs.Add(-1) > 0 {
		return
	}
	_, _ = registered.engines.Delete(e.key) // which never fails
}

// A queue is a directory and a prefix, and has one engine. Engines of two modules know
// nothing of each other, and would let two requests in: they are rivals. Two servers or
// namespaces of one module are two queues, which sites may have side by side. A configuration
// that gives a queue another engine is refused while requests of the old one are in it.
// Requests may still come to the old engine until the new configuration serves. So a
// request that gets its turn checks whether a rival has let one in, and is refused if so. If
// two requests check at the same time, at least one of them finds the other counted as
// inside: each is counted before it checks.

// rivalsOf are the open engines of other modules in a directory.
func (r *registry) rivalsOf(name, directory string) []*sharedEngine {
	return slices.DeleteFunc(r.openEngines(), func(e *sharedEngine) bool { return e.name == name || e.directory != directory })
}

// checkRivals refuses a request that has its turn if a rival has let another one in.
func (e *sharedEngine) checkRivals(queue string, turn serializer.Turn) error {
	if e.inDirectory.Load() == 1 {
		return nil
	}
	for _, rival := range registered.rivalsOf(e.name, e.directory) {
		if inside, _ := rival.Count(queue); inside > 0 {
			turn.Leave()
			return &serializer.Refused{
				Reason: serializer.ReasonStorage, Queue: queue, Position: turn.Position(), Token: turn.Token(),
				Err: &serializer.StorageError{Op: "entering", Path: e.Path(), Err: fmt.Errorf("a request is inside by engine %s, which the queue had before", rival.name)},
			}
		}
	}
	return nil
}

// checkEngineChange refuses another engine for a queue that another line of the
// configuration has, or that is in use.
func (s *Handler) checkEngineChange(l *load) error {
	name, directory := nameOf(s.module), registered.resolve(s.Path)
	for _, rival := range registered.rivalsOf(name, directory) {
		sameLoad := func(other *Handler) bool {
			return other.engine.sharedEngine == rival && other.ctx.Done() == s.ctx.Done() && overlap(other.prefix.Names, s.prefix.Names)
		}
		if others := registered.handlersWhere(sameLoad); len(others) > 0 {
			return fmt.Errorf("engine %s: prefix %q can mean the same queue as %q, which another line keeps in %s by engine %s; give one of them another prefix or path",
				name, s.Prefix, others[0].Prefix, directory, rival.name)
		}
		for _, state := range l.queuesOf(rival) {
			switch {
			case !s.covers(state.Prefix):
			// One is inside, or may enter. In a paused queue, they wait until they are refused.
			case state.Inside > 0 || state.Waiting > 0 && state.PausedUntil == nil:
				return fmt.Errorf("engine %s: queue %q in %s has %d inside and %d waiting by engine %s; "+
					"pause the queue, wait until nobody is inside, and load the configuration again",
					name, state.Prefix, directory, state.Inside, state.Waiting, rival.name)
			case state.Waiting > 0:
				s.ctx.Logger().Warn("requests wait in a paused queue that gets another engine; new ones do not wait for them, and they are refused at a resume while one of these is inside",
					zap.String("path", directory), zap.String("queue", state.Prefix), zap.Int("waiting", state.Waiting), zap.String("engine", rival.name))
			}
		}
	}
	return nil
}

// warnLeftOut names the queues of a handler that ends which have requests of this process,
// or a pause, and which no other handler has. Somebody may have edited a path or a prefix.
func (s *Handler) warnLeftOut() {
	mine := func(name string) bool { return overlap(s.prefix.Names, name) }
	for _, state := range s.engine.Known(mine) { // the server may be silent
		inside, waiting := s.engine.Count(state.Prefix)
		paused := state.PausedUntil != nil
		if inside+waiting == 0 && !paused || s.engine.has(state.Prefix) {
			continue
		}
		s.report.Logger.Warn("the new configuration does not have a queue that is in use or paused; another engine, server, namespace, path or prefix is another queue, "+
			"which is not paused, and does not wait for requests of this one", zap.String("path", s.engine.Path()), zap.String("queue", state.Prefix),
			zap.Int("inside", inside), zap.Int("waiting", waiting), zap.Bool("paused", paused))
	}
}

// has reports whether a handler has a queue of the engine, or one of those of a name that
// ends in *.
func (e *sharedEngine) has(name string) bool {
	has := func(s *Handler) bool {
		all := strings.HasSuffix(name, "*")
		return s.engine.sharedEngine == e && (all && overlap(s.prefix.Names, name) || !all && s.prefix.CanBe(name))
	}
	return len(registered.handlersWhere(has)) > 0
}

// Interface guards
var (
	_ caddy.Destructor   = (*sharedEngine)(nil)
	_ waitingpage.Engine = (*engineRef)(nil)
)

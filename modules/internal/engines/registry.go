package engines

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

	"github.com/orderly-http/caddy-orderly/serializer"
)

// registry has the engines, which outlive configurations. A reload must not break the order of a
// queue, and requests of the old configuration still wait and work while the new one serves.
type registry struct {
	engines sync.Map       // *Shared, by key
	loading sync.Mutex     // guards latest
	latest  *Loading       // of a configuration, which may be over
	opening sync.Mutex     // held while one is found or opened: two names of a directory must not have two
	closing sync.WaitGroup // engines that nobody uses any more
	counts  sync.Map       // *atomic.Int32, by directory: how many of these engines are open
}

var registered registry

// All are the engines in use, in the order of their keys. No lock is held while they
// are asked: an engine whose disk hangs must not keep configurations from loading.
func All() (engines []*Shared) {
	for _, e := range registered.engines.Range {
		engines = append(engines, e.(*Shared))
	}
	slices.SortFunc(engines, func(a, b *Shared) int { return strings.Compare(a.Key, b.Key) })
	return engines
}

// CloseAll closes all engines at once, since the process ends.
func CloseAll() {
	AskAll(All(), (*Shared).Close) // which never fails
	registered.closing.Wait()
}

// AskAll asks engines at once: those that do not answer take the time of one.
func AskAll[T any](engines []*Shared, ask func(*Shared) T) []T {
	answers := make([]T, len(engines))
	var asked sync.WaitGroup
	for i, e := range engines {
		asked.Go(func() { answers[i] = ask(e) })
	}
	asked.Wait()
	return answers
}

// Open returns an engine for a handler's directory, which it opens if necessary, until Release. The
// log is that of the handler's configuration.
func Open(module Module, path string, log *slog.Logger) (*Ref, error) {
	r := &registered
	r.opening.Lock()
	defer r.opening.Unlock()
	directory := Resolve(path)
	key, space := module.Where(directory)
	ref := &Ref{module: module, path: path, log: log}
	if open, _ := r.engines.Load(key); open != nil && open.(*Shared).acquire() {
		ref.Shared = open.(*Shared)
		return ref, nil
	}
	output := &forwarder{first: log.Handler()}
	store, err := module.Open(directory, slog.New(output))
	if err != nil {
		return nil, fmt.Errorf("opening engine: %w", err)
	}
	count, _ := r.counts.LoadOrStore(directory, new(atomic.Int32))
	ref.Shared = &Shared{
		Engine: serializer.New(store, serializer.Options{Log: slog.New(output)}),
		Key:    key, Name: NameOf(module), Space: space, Directory: directory,
		output: output, store: store, inDirectory: count.(*atomic.Int32),
	}
	ref.inDirectory.Add(1)
	ref.users.Store(1)
	r.engines.Store(key, ref.Shared)
	return ref, nil
}

// Resolve returns the path by which an engine is open for a directory, or else the path itself.
// The path may be a symbolic link, a bind mount or differ in case. An engine that was opened by
// the same path comes first: it knows who is inside, wherever the path leads now.
func Resolve(path string) string {
	path = filepath.Clean(path)
	found := path
	for _, open := range All() {
		if open.Directory == path {
			return path
		}
		if found == path && sameDirectory(open.Directory, path) {
			found = open.Directory
		}
	}
	return found
}

func sameDirectory(a, b string) bool {
	first, err := os.Stat(a)
	if err != nil {
		return RealPath(a) == RealPath(b)
	}
	second, err := os.Stat(b)
	return err == nil && os.SameFile(first, second)
}

// RealPath resolves the symbolic links of a path. Its missing end is kept, since it is
// created there later.
func RealPath(path string) string {
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		return real
	}
	parent := filepath.Dir(path)
	if parent == path {
		return path
	}
	return filepath.Join(RealPath(parent), filepath.Base(path))
}

// Shared is an engine that handlers share.
type Shared struct {
	*serializer.Engine
	Key       string
	Name      string   // of its module, such as file
	Space     string   // where it keeps its queues
	Directory string   // by which it was opened
	Attached  sync.Map // what packages keep with the engine, each by keys of a type of its own

	output      *forwarder
	store       serializer.Store
	users       atomic.Int64  // handlers of configurations, and requests; closed when there are none
	unwanted    atomic.Bool   // its configuration is rejected, so nothing of it may stay
	examined    atomic.Bool   // a load has asked whether its servers are suitable
	inDirectory *atomic.Int32 // how many engines are open there
}

// acquire adds a user, unless the last one has gone.
func (e *Shared) acquire() bool {
	for {
		switch n := e.users.Load(); {
		case n == 0:
			return false
		case e.users.CompareAndSwap(n, n+1):
			return true
		}
	}
}

// Release takes a user back. The last one closes the engine, but does not wait for servers: a reload
// may leave many engines out whose server is silent.
func (e *Shared) Release() {
	if e.users.Add(-1) > 0 {
		return
	}
	registered.engines.CompareAndDelete(e.Key, e)
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
}

// listPatience is how long an engine may take to say who is in its queues. If its server is
// silent, other engines are listed, and configurations are loaded: a new one may replace it.
const listPatience = time.Second

var errSilent = fmt.Errorf("no answer within %s", listPatience)

// Queues is that of the engine, with less patience.
func (e *Shared) Queues(ctx context.Context) ([]serializer.QueueState, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, listPatience, errSilent)
	defer cancel()
	return e.Engine.Queues(ctx)
}

// Ref is an engine as one handler has opened it.
type Ref struct {
	*Shared
	module Module
	path   string
	log    *slog.Logger

	// Replaces is the context of the configuration that was in use when that of the handler was
	// loaded, or nil.
	Replaces context.Context
}

// Acquire adds a user for one request. The last one may be gone already, since requests may arrive
// late during a reload; then the engine is opened again.
func (e *Ref) Acquire() (*Ref, error) {
	if e.acquire() {
		return e, nil
	}
	return Open(e.module, e.path, e.log)
}

// End releases the engine for a configuration that ends. Its requests may still use the engine, but
// not its log. If another configuration follows, passOn is called before. End returns false for a
// configuration that was never used: it was rejected, or only validated. Then an engine that nothing
// else uses leaves no directory behind.
func (e *Ref) End(passOn func()) (used bool) {
	used = true
	switch {
	case caddy.Exiting(): // also those that only requests of earlier configurations use
		CloseAll()
	case caddy.ActiveContext().Context == e.Replaces:
		used = false
		e.unwanted.Store(true)
		defer e.unwanted.Store(false) // another handler may use it
	default:
		passOn()
	}
	e.output.users.Delete(e)
	e.Release()
	return used
}

// A queue is a directory and a prefix, and has one engine. Engines of two modules know
// nothing of each other, and would let two requests in: they are rivals. Two servers or
// namespaces of one module are two queues, which sites may have side by side. A configuration
// that gives a queue another engine is refused while requests of the old one are in it.
// Requests may still come to the old engine until the new configuration serves. So a
// request that gets its turn checks whether a rival has let one in, and is refused if so. If
// two requests check at the same time, at least one of them finds the other counted as
// inside: each is counted before it checks.

// RivalsOf are the open engines of other modules in a directory.
func RivalsOf(name, directory string) []*Shared {
	return slices.DeleteFunc(All(), func(e *Shared) bool { return e.Name == name || e.Directory != directory })
}

// CheckRivals refuses a request that has its turn if a rival has let another one in.
func (e *Shared) CheckRivals(queue string, turn serializer.Turn) error {
	if e.inDirectory.Load() == 1 {
		return nil
	}
	return e.leaveTo(RivalsOf(e.Name, e.Directory), queue, turn)
}

// CheckOthers is CheckRivals for a queue that is one, wherever engines of this process keep it.
func (e *Shared) CheckOthers(queue string, turn serializer.Turn) error {
	return e.leaveTo(slices.DeleteFunc(All(), func(other *Shared) bool { return other == e }), queue, turn)
}

func (e *Shared) leaveTo(rivals []*Shared, queue string, turn serializer.Turn) error {
	for _, rival := range rivals {
		if inside, _ := rival.Count(queue); inside > 0 {
			turn.Leave()
			return &serializer.Refused{
				Reason: serializer.ReasonStorage, Queue: queue, Position: turn.Position(), Token: turn.Token(),
				Err: &serializer.StorageError{Op: "entering", Path: e.Path(), Err: fmt.Errorf("a request is inside by engine %s at %s, which the queue had before", rival.Name, rival.Path())},
			}
		}
	}
	return nil
}

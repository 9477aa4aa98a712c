package serialize

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// A queue is a directory and a prefix, and has one engine. Engines know nothing of each
// other, so two of them would let two requests in. They are rivals if they are by other
// modules, or if the path of a directory has begun to lead to another one. A configuration that gives a queue
// another engine is refused while requests of the old one are in it. Requests may still
// come to the old engine until the new configuration serves, and in a paused queue they
// may wait there. So a request that gets its turn looks whether another engine has let
// one in, and is refused if so. Of two that do this at once, at least one sees the other,
// because each is counted as inside before it looks.

// rivals is what an engine knows of its rivals.
type rivals struct {
	met atomic.Bool // there may be some

	mu    sync.Mutex
	names []string // of the directories of the handlers that have opened the engine
}

// add notes the names of a handler's directory.
func (r *rivals) add(names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range names {
		if !slices.Contains(r.names, name) {
			r.names = append(r.names, name)
		}
	}
}

// share reports whether a handler of a directory has opened the engine.
func (r *rivals) share(names []string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(names, func(name string) bool { return slices.Contains(r.names, name) })
}

// meetRivals notes that a handler has opened the engine.
func (e *engineRef) meetRivals() {
	e.rivals.add(e.names)
	for _, other := range e.rivalsIn(e.names) {
		e.rivals.met.Store(true)
		other.rivals.met.Store(true)
	}
}

// rivalsIn are the rivals in a directory of an engine with this identity.
func (id engineIdentity) rivalsIn(names []string) (found []*sharedEngine) {
	for _, other := range openEngines() {
		if other.space != id.space && (other.name != id.name || id.placed) && other.rivals.share(names) {
			found = append(found, other)
		}
	}
	return found
}

// checkRivals refuses a request that has its turn in a queue, if a rival has let another
// one in.
func (e *engineRef) checkRivals(queue string, turn serializer.Turn) error {
	if !e.rivals.met.Load() {
		return nil
	}
	e.rivals.met.Store(false) // first, since another one may come while this one looks
	for _, other := range e.rivalsIn(e.names) {
		e.rivals.met.Store(true)
		if inside, _ := other.Count(queue); inside > 0 {
			turn.Leave()
			return &serializer.Refused{
				Reason: serializer.ReasonStorage, Queue: queue, Position: turn.Position(), Token: turn.Token(),
				Err: &serializer.StorageError{Op: "entering", Path: e.Path(), Err: fmt.Errorf("a request is inside by engine %s in %s, which the queue had before", other.name, other.Path())},
			}
		}
	}
	return nil
}

// rivalPatience bounds the time in which the old engine of a queue says who is in it. If
// it cannot tell, the new configuration is loaded: it may be meant to replace an engine
// whose storage has failed.
const rivalPatience = time.Second

// checkEngineChange refuses another engine for a queue that is in use.
func (s *Handler) checkEngineChange(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rivalPatience)
	defer cancel()
	names, mine := directoryNames(s.Path), s.configured()
	id := identify(s.module, names[1])
	for _, other := range id.rivalsIn(names) {
		states, _ := other.Engine.Queues(ctx)
		for _, state := range states {
			if mine.covers(state.Prefix) && isInUse(state) {
				return fmt.Errorf("engine %s: queue %q in %s has %d requests inside and %d waiting by engine %s in %s; "+
					"pause the queue, wait until nobody is inside, and load the configuration again",
					id.name, state.Prefix, names[0], state.Inside, state.Waiting, other.name, other.Path())
			}
		}
	}
	return nil
}

// isInUse reports whether a request is inside a queue, or may enter. Those that wait in a
// paused queue do so until they are refused.
func isInUse(state serializer.QueueState) bool {
	return state.Inside > 0 || state.Waiting > 0 && state.PausedUntil == nil
}

package serialize

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueapi"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// The engine keeps a pause, so it applies to all processes of its directory. It has
// the name of a queue, or ends in a *, for all queues whose names begin so.

// mayHave reports whether a prefix with placeholders has queues that a name stands for.
func (e *sharedEngine) mayHave(name string) bool {
	start, all := strings.CutSuffix(name, "*")
	return len(registered.membersWhere(func(m *member) bool {
		return m.engine == e && m.many && (m.covers(start) || all && strings.HasPrefix(m.queue, start))
	})) > 0
}

// isAt reports whether the engine keeps its queues at a path, which may be the
// engine's own name of the place.
func (e *sharedEngine) isAt(path string) bool {
	return path == e.Path() || path == e.directory || realPath(e.directory) == realPath(path)
}

// nameOf finds the name of a queue, or of all that begin alike, as the engine knows it.
// prefix is one from a configuration or from a list.
func (e *sharedEngine) nameOf(ctx context.Context, prefix string) (name string, ok bool, err error) {
	states, err := e.describedQueues(ctx)
	if err != nil {
		return "", false, err
	}
	escaped := queueapi.Escape(prefix)
	for _, name := range []string{prefix, escaped} {
		if slices.ContainsFunc(states, func(s serializer.QueueState) bool { return queueapi.Matches(name, s.Prefix) }) {
			return name, true, nil
		}
	}
	return escaped, !queueapi.Placeholder.MatchString(prefix) && e.mayHave(escaped), nil
}

// pausable is a queue, or all whose names begin alike, in the engines of one place.
type pausable struct {
	name    string
	engines []*sharedEngine
}

// findPausable finds a queue by its path, a slash and its prefix. A prefix alone
// names the queues of all places. Both may have slashes.
func findPausable(ctx context.Context, queue string) (found []pausable, byPath bool, err error) {
	var failed []error
	for i := strings.LastIndexByte(queue, '/'); i >= 0 && len(found) == 0; i = strings.LastIndexByte(queue[:i], '/') {
		path, prefix := queue[:i], queue[i+1:]
		found, err = pausableIn(ctx, prefix, func(e *sharedEngine) bool { return e.isAt(path) })
		failed = append(failed, err)
	}
	if byPath = len(found) > 0; byPath {
		return found, byPath, nil
	}
	found, err = pausableIn(ctx, queue, func(*sharedEngine) bool { return true })
	failed = append(failed, err)
	if len(found) == 0 {
		return nil, false, cmp.Or(errors.Join(failed...), fmt.Errorf("%w: %s", queueapi.ErrNoQueue, queue))
	}
	return found, false, nil
}

// pausableIn finds a queue by its prefix in some of the engines.
func pausableIn(ctx context.Context, prefix string, wanted func(*sharedEngine) bool) (found []pausable, err error) {
	var failed []error
	for _, e := range registered.openEngines() {
		if !wanted(e) {
			continue
		}
		name, ok, err := e.nameOf(ctx, prefix)
		switch {
		case err != nil:
			failed = append(failed, err)
		case ok:
			found = addPausable(found, name, e)
		}
	}
	return found, errors.Join(failed...)
}

func addPausable(all []pausable, name string, e *sharedEngine) []pausable {
	i := slices.IndexFunc(all, func(p pausable) bool { return p.name == name && p.engines[0].space == e.space })
	if i < 0 {
		return append(all, pausable{name, []*sharedEngine{e}})
	}
	all[i].engines = append(all[i].engines, e)
	return all
}

// pause pauses the queue in all engines that it is in.
func (p pausable) pause(ctx context.Context, until time.Time) error {
	for _, e := range p.engines {
		if err := e.Pause(ctx, p.name, until); err != nil {
			return fmt.Errorf("pausing queue %q in %s: %w", p.name, e.Path(), err)
		}
	}
	return nil
}

func (p pausable) resume(ctx context.Context) error {
	for _, e := range p.engines {
		if err := e.Resume(ctx, p.name); err != nil {
			return fmt.Errorf("resuming queue %q in %s: %w", p.name, e.Path(), err)
		}
	}
	return nil
}

// state lists the queue. A name with a * that is not paused is not in any list.
func (p pausable) state(ctx context.Context) (serializer.QueueState, error) {
	states, err := p.engines[0].describedQueues(ctx)
	if err != nil {
		return serializer.QueueState{}, err
	}
	i := slices.IndexFunc(states, func(s serializer.QueueState) bool { return s.Prefix == p.name })
	if i < 0 {
		return withTickets(serializer.QueueState{Path: p.engines[0].Path(), Prefix: p.name}), nil
	}
	return withTickets(states[i]), nil
}

// paused is a queue that is paused, or all whose names begin alike.
type paused struct {
	name   string
	engine *sharedEngine
}

// collectPaused asks all engines.
func collectPaused(ctx context.Context) (all []paused) {
	for _, e := range registered.openEngines() {
		states, err := e.Queues(ctx)
		if err != nil {
			continue // its requests are refused, which other metrics tell
		}
		for _, state := range states {
			if state.PausedUntil != nil {
				all = append(all, paused{state.Prefix, e})
			}
		}
	}
	return all
}

package engines

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Loading is one load of a configuration. What all its lines need to know of engines is asked
// once, of all engines at once: a load must not cost more with each line.
type Loading struct {
	id       <-chan struct{} // of the configuration: its context's Done
	active   context.Context // of the configuration that is in use meanwhile; nil if none is
	before   []*Shared       // that were open already: the queues of new ones are empty
	patience time.Duration   // left for servers that do not answer

	asked  sync.Once
	queues map[*Shared][]serializer.QueueState // of the engines before

	Sweep sync.Once // begins, once for all lines, to remove what the handler once has stored
}

// loadPatience is how long a load waits for servers in all, before it goes on without their
// answers. Each gets half of what is left at most, so that one behind many silent ones is asked, too.
const (
	loadPatience = 1500 * time.Millisecond
	leastAnswer  = 20 * time.Millisecond // nobody is asked for less
)

// LoadingOf returns the load of a handler's configuration. Caddy loads one after the other.
func LoadingOf(ctx caddy.Context) *Loading {
	r := &registered
	r.loading.Lock()
	defer r.loading.Unlock()
	if r.latest == nil || r.latest.id != ctx.Done() {
		r.latest = &Loading{id: ctx.Done(), active: caddy.ActiveContext().Context, before: All(), patience: loadPatience}
	}
	return r.latest
}

// Open opens an engine, as the function does, for a handler of the configuration, until [Ref.End]. It
// refuses one whose servers are unsuitable.
func (l *Loading) Open(module Module, path string, log *slog.Logger) (*Ref, error) {
	ref, err := Open(module, path, log)
	if err != nil {
		return nil, err
	}
	ref.Replaces = l.active
	ref.output.users.Store(ref, true)
	return ref, l.examine(ref.Shared)
}

// QueuesOf lists the queues of an engine, as they were when the first line needed any. Of
// an engine whose server is silent, it lists what is known here.
func (l *Loading) QueuesOf(e *Shared) []serializer.QueueState {
	l.asked.Do(func() {
		l.queues = make(map[*Shared][]serializer.QueueState)
		ask := func(e *Shared) []serializer.QueueState {
			if states, err := e.Queues(context.Background()); err == nil {
				return states
			}
			return e.Known(func(string) bool { return true })
		}
		for i, states := range AskAll(l.before, ask) {
			l.queues[l.before[i]] = states
		}
	})
	return l.queues[e]
}

// examine asks the servers of an engine, once for all handlers, whether they may ever keep queues,
// as they are configured. Servers that do not answer before ctx is done are not at fault.
func (l *Loading) examine(e *Shared) error {
	served, ok := e.store.(interface{ Suitable(context.Context) error })
	if !ok || l.patience/2 < leastAnswer || e.examined.Swap(true) {
		return nil
	}
	begun := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), l.patience/2)
	defer cancel()
	if err := served.Suitable(ctx); err != nil {
		return fmt.Errorf("opening engine: %w", err)
	}
	l.patience = max(l.patience-time.Since(begun), 0)
	return nil
}

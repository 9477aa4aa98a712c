package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile"
	"github.com/orderly-http/caddy-orderly/serializer/memory"
)

// engine is what the processes use of a [serializer.Engine].
type engine interface {
	Enter(ctx context.Context, a serializer.Arrival) (serializer.Turn, error)
	Queues(ctx context.Context) ([]serializer.QueueState, error)
	Evict(ctx context.Context, queue string, token uint64) error
	Pause(ctx context.Context, name string, until time.Time) error
	Resume(ctx context.Context, name string) error
	Close() error
}

// openers open an engine on each kind of store. Tests add wrong ones, whose defects must
// be found.
var openers = map[string]func(p *process) (engine, error){
	"lockfile": func(p *process) (engine, error) {
		s, err := lockfile.Open(p.Dir, lockfile.Options{Clock: p.clock})
		if err != nil {
			return nil, err
		}
		return p.newEngine(s), nil
	},
	"memory": func(p *process) (engine, error) {
		return p.newEngine(memory.New(memory.Options{Path: p.Dir, Clock: p.clock})), nil
	},
}

// newEngine makes an engine on a store, and looks at what the store reports.
func (p *process) newEngine(s serializer.Store) engine {
	watched := &watchedStore{s, p}
	if _, ok := s.(serializer.Immediate); ok {
		return serializer.New(immediateStore{watched}, serializer.Options{})
	}
	return serializer.New(watched, serializer.Options{})
}

type watchedStore struct {
	serializer.Store
	process *process
}

type immediateStore struct{ *watchedStore }

func (immediateStore) Immediate() {}

func (s *watchedStore) Follow(e serializer.Events) { s.Store.Follow(&watchedEvents{e, s.process}) }

// watchedEvents note when positions are fixed, and which tickets came last.
type watchedEvents struct {
	serializer.Events
	process *process
}

func (e *watchedEvents) Joined(t *serializer.Ticket) (wanted bool) {
	q := indexOf(t.Queue)
	if q >= 0 {
		e.process.latest[q].add(t.Number)
	}
	wanted = e.Events.Joined(t)
	if q >= 0 && wanted {
		e.process.note(record{who: who{process: e.process.Number}, what: joins, queue: q, token: t.Number, at: now()})
	}
	return wanted
}

func (e *watchedEvents) Appeared(t *serializer.Ticket) {
	if q := indexOf(t.Queue); q >= 0 {
		e.process.latest[q].add(t.Number)
	}
	e.Events.Appeared(t)
}

func indexOf(queue string) int {
	return slices.IndexFunc(queues, func(q testQueue) bool { return q.prefix == queue })
}

// latest are the greatest tokens that a store has reported in a queue, in order.
type latest struct {
	mu     sync.Mutex
	tokens []uint64
}

const latestKept = 8 // more than keep of any queue

func (l *latest) add(token uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, found := slices.BinarySearch(l.tokens, token)
	if found {
		return
	}
	l.tokens = slices.Insert(l.tokens, i, token)
	l.tokens = l.tokens[max(len(l.tokens)-latestKept, 0):]
}

// after returns how many tokens are greater than one, up to latestKept.
func (l *latest) after(token uint64) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, found := slices.BinarySearch(l.tokens, token)
	if found {
		i++
	}
	return len(l.tokens) - i
}

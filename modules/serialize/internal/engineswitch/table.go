// Package engineswitch keeps the order of a queue within one process while a reload
// changes its engine.
package engineswitch

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// A queue is a directory and a prefix. Within one process it stays the same queue
// when a reload changes its engine, or when its path starts to lead to another
// directory. Engines know nothing of each other, so this file counts the requests
// of this process in front of them. Requests for a new engine take their tickets
// only after all requests of the old engine have left.
//
// A request waits here before it has a ticket, never while it holds one. So no
// request waits for one that came later, and no circle of waiting requests can
// form, whatever the engines do.

// maxSpareQueues bounds the memory that is kept for later local queues.
const maxSpareQueues = 64

// localQueueTable holds all local queues that have requests in them. Its lock is
// never held while an engine is called.
type localQueueTable struct {
	mu        sync.Mutex
	byName    map[localName]*localQueue
	spare     []*localQueue // empty ones, to be reused
	lastToken uint64
}

var localQueues = localQueueTable{byName: make(map[localName]*localQueue)}

// arrive adds a request to the local queues of its names.
func (q *localQueueTable) arrive(t *Turn, names []string, a *serializer.Arrival) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	t.entries = t.one[:0]
	free, ahead, waiting := true, 0, 0
	for _, name := range names {
		l := q.queueLocked(localName{name, a.Queue})
		free = free && l.freeLocked(t.engine)
		requests, inside := l.countLocked()
		ahead, waiting = max(ahead, requests), max(waiting, requests-inside)
		t.entries = append(t.entries, localEntry{l, l.joinLocked(t.engine)})
	}
	if free {
		return nil
	}
	w := &engineWait{arrival: *a, arrived: time.Now(), position: ahead, ready: make(chan error, 1)}
	if a.MaxWaiting > 0 && waiting >= a.MaxWaiting {
		if !a.DropOldest {
			q.leaveLocked(t)
			return w.refused(serializer.ErrFull)
		}
		t.supersedeLocked()
	}
	q.lastToken = max(uint64(max(w.arrived.UnixMicro(), 0)), q.lastToken+1)
	w.token = q.lastToken
	t.wait = w
	for _, p := range t.entries {
		p.generation.pending = append(p.generation.pending, t)
	}
	return nil
}

// queueLocked returns the local queue of a name.
func (q *localQueueTable) queueLocked(name localName) *localQueue {
	l := q.byName[name]
	if l != nil {
		return l
	}
	if n := len(q.spare); n > 0 {
		l, q.spare = q.spare[n-1], q.spare[:n-1]
	} else {
		l = new(localQueue)
	}
	l.name = name
	q.byName[name] = l
	return l
}

// enter notes that a request holds its turn.
func (q *localQueueTable) enter(t *Turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t.entered = true
	for _, p := range t.entries {
		p.generation.inside++
	}
	t.joinedLocked()
}

// joined notes that a request has joined the engine's queue, so that the next one
// may join behind it.
func (q *localQueueTable) joined(t *Turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t.joinedLocked()
}

// leave takes a request out of its local queues.
func (q *localQueueTable) leave(t *Turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.leaveLocked(t)
}

func (q *localQueueTable) leaveLocked(t *Turn) {
	if t.departed {
		return
	}
	t.departed = true
	t.joinedLocked()
	for _, p := range t.entries {
		p.generation.requests--
		if t.entered {
			p.generation.inside--
		}
		if p.generation.requests == 0 {
			q.endLocked(p)
		}
	}
	t.advanceLocked()
}

// endLocked takes a generation out of its queue, and the queue out of the table if
// that was the last one.
func (q *localQueueTable) endLocked(p localEntry) {
	l, g := p.queue, p.generation
	i := slices.Index(l.generations, g)
	copy(l.generations[i:], l.generations[i+1:])
	last := len(l.generations) - 1
	l.generations[last] = g // its memory is reused
	g.engine = nil
	l.generations = l.generations[:last]
	if last > 0 {
		return
	}
	delete(q.byName, l.name)
	if len(q.spare) < maxSpareQueues {
		q.spare = append(q.spare, l)
	}
}

// pendingLocked lists the requests that wait to join an engine's queues, in order
// of arrival.
func (q *localQueueTable) pendingLocked(engine serializer.Engine) (pending []*Turn) {
	for _, l := range q.byName {
		for _, g := range l.generations {
			for _, t := range g.pending {
				if t.engine == engine && t.entries[0].queue == l && !t.wait.ended {
					pending = append(pending, t)
				}
			}
		}
	}
	slices.SortFunc(pending, func(a, b *Turn) int { return cmp.Compare(a.wait.token, b.wait.token) })
	return pending
}

// Evict refuses a request that waits to join a queue of an engine. It reports whether
// there was one with the token.
func Evict(engine serializer.Engine, queue string, token uint64) bool {
	localQueues.mu.Lock()
	defer localQueues.mu.Unlock()
	for _, t := range localQueues.pendingLocked(engine) {
		if t.wait.arrival.Queue == queue && t.wait.token == token {
			t.wait.endLocked(serializer.ErrEvicted)
			return true
		}
	}
	return false
}

// RefuseAll refuses all requests that wait to join an engine's queues.
func RefuseAll(engine serializer.Engine, err error) {
	localQueues.mu.Lock()
	defer localQueues.mu.Unlock()
	for _, t := range localQueues.pendingLocked(engine) {
		t.wait.endLocked(err)
	}
}

// List adds the requests that wait to join an engine's queues to the states of these.
func List(engine serializer.Engine, path string, states []serializer.QueueState) []serializer.QueueState {
	localQueues.mu.Lock()
	defer localQueues.mu.Unlock()
	for _, t := range localQueues.pendingLocked(engine) {
		i := slices.IndexFunc(states, func(s serializer.QueueState) bool { return s.Prefix == t.wait.arrival.Queue })
		if i < 0 {
			i = len(states)
			states = append(states, serializer.QueueState{Path: path, Prefix: t.wait.arrival.Queue})
		}
		states[i].Add(t.wait.state(), t.wait.arrival.Rule)
	}
	return states
}

// Count is how many queues of a path have requests of this process.
func Count(path string) (n int) {
	localQueues.mu.Lock()
	defer localQueues.mu.Unlock()
	for name := range localQueues.byName {
		if name.path == path {
			n++
		}
	}
	return n
}

package engineswitch

import "github.com/orderly-http/caddy-orderly/serializer"

// localQueue is one queue as the requests of this process see it. Nearly always it
// has one generation. All its methods need the lock of [localQueueTable].
type localQueue struct {
	name        localName
	generations []*generation // in order of arrival; the first may use its engine
}

// localName is a name of a queue. A queue whose path leads through a symbolic link
// has several: the path as it is written, and where it leads.
type localName struct{ path, queue string }

// generation is a row of consecutive requests that use the same engine.
type generation struct {
	engine   serializer.Engine
	requests int     // that have arrived and not left
	inside   int     // of these, those that hold a turn
	pending  []*Turn // of these, in order, those that may not have joined the engine's queue yet
}

// freeLocked reports whether a request may go straight to its engine: there is no
// request with another engine, and none is pending.
func (l *localQueue) freeLocked(engine serializer.Engine) bool {
	return len(l.generations) == 0 ||
		len(l.generations) == 1 && l.generations[0].engine == engine && len(l.generations[0].pending) == 0
}

func (l *localQueue) countLocked() (requests, inside int) {
	for _, g := range l.generations {
		requests, inside = requests+g.requests, inside+g.inside
	}
	return requests, inside
}

// joinLocked adds a request at the end.
func (l *localQueue) joinLocked(engine serializer.Engine) *generation {
	n := len(l.generations)
	if n == 0 || l.generations[n-1].engine != engine {
		l.addLocked(engine)
		n++
	}
	g := l.generations[n-1]
	g.requests++
	return g
}

// addLocked begins a generation, in the memory of an ended one if there is one.
func (l *localQueue) addLocked(engine serializer.Engine) {
	n := len(l.generations)
	if n < cap(l.generations) {
		l.generations = l.generations[:n+1]
	} else {
		l.generations = append(l.generations, nil)
	}
	if l.generations[n] == nil {
		l.generations[n] = new(generation)
	}
	l.generations[n].engine = engine
}

// firstLocked is the first pending request of the first generation, or nil.
func (l *localQueue) firstLocked() *Turn {
	if len(l.generations) == 0 || len(l.generations[0].pending) == 0 {
		return nil
	}
	return l.generations[0].pending[0]
}

// advanceLocked lets the first pending request join its engine's queue, if it is
// the first in all its local queues.
func (l *localQueue) advanceLocked() {
	t := l.firstLocked()
	if t == nil || t.wait.ended {
		return
	}
	for _, p := range t.entries {
		if p.queue.firstLocked() != t {
			return
		}
	}
	t.wait.endLocked(nil)
}

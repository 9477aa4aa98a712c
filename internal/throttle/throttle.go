// Package throttle limits repeated log entries.
package throttle

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"
)

// Throttle allows one log entry in each interval for each key. Events in between share the
// next entry. It is safe for concurrent use, and the zero value is ready to use.
type Throttle[K comparable] struct {
	// Interval is the time between two log entries of the same key. Default: a second.
	Interval time.Duration

	mu   sync.Mutex
	keys map[K]*pending // of which an entry was written less than an interval ago
}

// pending are the events since then.
type pending struct {
	count int
	write func(count int) // of the last one
}

// Do writes an entry for an event, now or when the interval of its key is over. The count is
// the number of events that the entry stands for. Of several that share an entry, the last
// one writes it. Its values should be what they were at the event.
func (t *Throttle[K]) Do(key K, write func(count int)) { t.add(key, 1, write) }

func (t *Throttle[K]) add(key K, count int, write func(count int)) {
	t.mu.Lock()
	if p := t.keys[key]; p != nil {
		p.count, p.write = p.count+count, write
		t.mu.Unlock()
		return
	}
	if t.keys == nil {
		t.keys = make(map[K]*pending)
	}
	t.keys[key] = new(pending)
	t.mu.Unlock()
	time.AfterFunc(cmp.Or(t.Interval, time.Second), func() { t.end(key) })
	write(count)
}

// end ends the interval of a key. What has happened meanwhile begins another one.
func (t *Throttle[K]) end(key K) {
	t.mu.Lock()
	p := t.keys[key]
	delete(t.keys, key)
	t.mu.Unlock()
	if p != nil && p.count > 0 {
		t.add(key, p.count, p.write)
	}
}

// Flush writes all that has happened up to now. Intervals that begin then may be shorter.
func (t *Throttle[K]) Flush() {
	t.mu.Lock()
	keys := slices.Collect(maps.Keys(t.keys))
	t.mu.Unlock()
	for _, key := range keys {
		t.end(key)
	}
}

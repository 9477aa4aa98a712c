// Package throttle limits repeated log entries.
package throttle

import (
	"cmp"
	"maps"
	"sync"
	"time"
)

// Throttle allows one log entry in each interval for each key. The next entry stands for the events in
// between, too. It is safe for concurrent use, and the zero value is ready to use.
type Throttle[K comparable] struct {
	// Interval is the time between two log entries of the same key. Default: a second.
	Interval time.Duration

	mu   sync.Mutex
	keys map[K]recent
}

// recent are the events since an entry.
type recent struct {
	next  time.Time // when there may be another entry
	count int
}

// kept is how long events are remembered that no entry stands for.
const kept = time.Hour

// Do writes an entry for an event, unless the interval of its key is not over. The count is
// the number of events that the entry stands for.
func (t *Throttle[K]) Do(key K, write func(count int)) {
	if count := t.add(key, time.Now()); count > 0 {
		write(count)
	}
}

// add counts an event. It returns how many events an entry stands for now, or 0 if it is too early for one.
func (t *Throttle[K]) add(key K, now time.Time) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.keys[key]
	if r.count++; now.Before(r.next) {
		t.keys[key] = r
		return 0
	}
	maps.DeleteFunc(t.keys, func(_ K, old recent) bool { return now.Sub(old.next) > kept })
	if t.keys == nil {
		t.keys = make(map[K]recent)
	}
	t.keys[key] = recent{next: now.Add(cmp.Or(t.Interval, time.Second))}
	return r.count
}

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

	mu    sync.Mutex
	keys  map[K]recent
	sweep time.Time // when old ones are removed next
}

// recent are the events since an entry.
type recent struct {
	next  time.Time // when there may be another entry
	count int
}

// An event that no entry stands for is forgotten after kept. If there are more than mostKept keys, it
// is forgotten after its interval: there may be a new key for each event.
const (
	kept     = time.Hour
	mostKept = 1000
)

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
	if t.keys == nil {
		t.keys = make(map[K]recent)
	}
	next := now.Add(cmp.Or(t.Interval, time.Second))
	t.keys[key] = recent{next: next}
	if now.After(t.sweep) {
		t.sweep = next
		maps.DeleteFunc(t.keys, func(_ K, old recent) bool {
			return now.After(old.next) && (old.count == 0 || len(t.keys) > mostKept || now.Sub(old.next) > kept)
		})
	}
	return r.count
}

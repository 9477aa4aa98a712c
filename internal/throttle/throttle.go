// Package throttle limits repeated log entries.
package throttle

import (
	"sync"
	"time"
)

// interval is the time between two log entries of the same key.
const interval = time.Second

// Throttle allows one log entry a second for each key. Its memory grows with the
// number of keys, so they must not come from clients. The zero value is ready to
// use. It is safe for concurrent use.
type Throttle[K comparable] struct {
	mu   sync.Mutex
	keys map[K]*state
}

type state struct {
	logged time.Time // the last entry
	count  int       // events since then
}

// Allow counts an event and reports whether to log it now. The count is the number
// of events that the entry stands for: this one and those not logged before it.
func (t *Throttle[K]) Allow(key K) (count int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.keys == nil {
		t.keys = make(map[K]*state)
	}
	s := t.keys[key]
	if s == nil {
		s = new(state)
		t.keys[key] = s
	}
	s.count++
	now := time.Now()
	if !s.logged.IsZero() && now.Sub(s.logged) < interval {
		return 0, false
	}
	count, s.count, s.logged = s.count, 0, now
	return count, true
}

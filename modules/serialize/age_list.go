package serialize

import (
	"sync"
	"time"
)

// ageList are the requests of one record that do the same at the moment: they
// wait, or they are inside. They are linked in the order they began, so the
// oldest is known at any time, also while nothing happens. To join and to part
// costs a lock and no memory.
type ageList struct {
	mu          sync.Mutex
	first, last *ageEntry
}

// ageEntry is a request's place in a ageList. It is in one at most.
type ageEntry struct {
	previous, next *ageEntry
	visit          *visit
	since          time.Time
}

// insert adds a request. A goroutine may come late with its time, so it is put in
// by time; it nearly always goes to the end.
func (c *ageList) insert(m *ageEntry, since time.Time) {
	m.since = since
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.last
	for before != nil && before.since.After(since) {
		before = before.previous
	}
	m.previous = before
	if before == nil {
		m.next, c.first = c.first, m
	} else {
		m.next, before.next = before.next, m
	}
	if m.next == nil {
		c.last = m
	} else {
		m.next.previous = m
	}
}

// remove takes a request out.
func (c *ageList) remove(m *ageEntry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.previous == nil {
		c.first = m.next
	} else {
		m.previous.next = m.next
	}
	if m.next == nil {
		c.last = m.previous
	} else {
		m.next.previous = m.previous
	}
	m.previous, m.next = nil, nil
}

// oldest is for how long the oldest has been there; 0 if there is nobody.
func (c *ageList) oldest(now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first == nil {
		return 0
	}
	return max(now.Sub(c.first.since), 0)
}

func (c *ageList) empty() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.first == nil
}

// maxAgesScanned bounds how many a refusal looks at: prefixes with placeholders
// have crowds from many queues.
const maxAgesScanned = 256

// ages are for how long the requests in one queue have been there, the oldest
// first. Only the oldest of the ageList are looked at.
func (c *ageList) ages(queue string, now time.Time) (ages []time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for m, n := c.first, 0; m != nil && n < maxAgesScanned; m, n = m.next, n+1 {
		if m.visit.queue == queue {
			ages = append(ages, max(now.Sub(m.since), 0))
		}
	}
	return ages
}

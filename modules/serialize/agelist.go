package serialize

import (
	"sync"
	"time"
)

// ageList lists the requests of one prefix that wait, or those that are inside, in
// the order in which they began. So the oldest is known at any time, even while
// nothing happens. Inserting and removing take a lock and no memory.
type ageList struct {
	mu          sync.Mutex
	first, last *ageEntry
}

// ageEntry is a request's entry in an ageList. It is in one list at most.
type ageEntry struct {
	previous, next *ageEntry
	queue          string // the name of its queue
	reader         bool   // its method is one of shared_methods
	since          time.Time
}

// insert adds a request in order of time. It nearly always goes to the end, but a
// goroutine may be delayed after it has read the clock.
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

// remove removes a request.
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

// oldest is the age of the oldest request; 0 if there is none.
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

// maxAgesScanned bounds the work of a refusal. The list of a prefix with
// placeholders has requests of many queues.
const maxAgesScanned = 256

// ages are the ages of the requests in one queue, the oldest first. Only the oldest
// requests of the list are considered.
func (c *ageList) ages(queue string, now time.Time) (ages []time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for m, n := c.first, 0; m != nil && n < maxAgesScanned; m, n = m.next, n+1 {
		if m.queue == queue {
			ages = append(ages, max(now.Sub(m.since), 0))
		}
	}
	return ages
}

// readers counts the readers in one queue. It is 0 if one of its requests is not a
// reader. Only the oldest requests of the list are considered.
func (c *ageList) readers(queue string) (readers int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for m, n := c.first, 0; m != nil && n < maxAgesScanned; m, n = m.next, n+1 {
		switch {
		case m.queue != queue:
		case !m.reader:
			return 0
		default:
			readers++
		}
	}
	return readers
}

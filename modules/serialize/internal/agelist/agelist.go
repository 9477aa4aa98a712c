// Package agelist knows how long requests have waited, or have been inside.
package agelist

import (
	"sync"
	"time"
)

// List lists the requests of one prefix that wait, or those that are inside, in
// the order in which they began. So the oldest is known at any time, even while
// nothing happens. Inserting and removing take a lock and no memory.
type List struct {
	mu          sync.Mutex
	first, last *Entry
}

// Entry is a request's entry in a List. It is in one list at most.
type Entry struct {
	previous, next *Entry
	Queue          string    // the name of its queue
	Reader         bool      // its method is one of shared_methods
	Since          time.Time // when it began; set by Insert
}

// Insert adds a request in order of time. It nearly always goes to the end, but a
// goroutine may be delayed after it has read the clock.
func (c *List) Insert(m *Entry, since time.Time) {
	m.Since = since
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.last
	for before != nil && before.Since.After(since) {
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

// Remove removes a request.
func (c *List) Remove(m *Entry) {
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

// Oldest is the age of the oldest request; 0 if there is none.
func (c *List) Oldest(now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first == nil {
		return 0
	}
	return max(now.Sub(c.first.Since), 0)
}

// maxAgesScanned bounds the work of a refusal. The list of a prefix with
// placeholders has requests of many queues.
const maxAgesScanned = 256

// Ages are the ages of the requests in one queue, the oldest first. Only the oldest
// requests of the list are considered.
func (c *List) Ages(queue string, now time.Time) (ages []time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for m, n := c.first, 0; m != nil && n < maxAgesScanned; m, n = m.next, n+1 {
		if m.Queue == queue {
			ages = append(ages, max(now.Sub(m.Since), 0))
		}
	}
	return ages
}

// Readers counts the readers in one queue. It is 0 if one of its requests is not a
// reader. Only the oldest requests of the list are considered.
func (c *List) Readers(queue string) (readers int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for m, n := c.first, 0; m != nil && n < maxAgesScanned; m, n = m.next, n+1 {
		switch {
		case m.Queue != queue:
		case !m.Reader:
			return 0
		default:
			readers++
		}
	}
	return readers
}

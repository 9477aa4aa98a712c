// Package oldest knows the oldest request that waits, or is inside, and how old it is.
package oldest

import (
	"iter"
	"sync"
	"time"
)

// List lists the requests of one prefix that wait, or those that are inside, in
// the order in which they began. So the oldest is known at any time, even while
// nothing happens. Inserting and removing take a lock and no memory.
type List struct {
	mu   sync.Mutex
	ring Entry // of no request; the oldest comes after it, and the newest before it
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
	if c.ring.next == nil {
		c.ring.previous, c.ring.next = &c.ring, &c.ring
	}
	before := c.ring.previous
	for before != &c.ring && before.Since.After(since) {
		before = before.previous
	}
	m.previous, m.next = before, before.next
	m.previous.next, m.next.previous = m, m
}

// Remove removes a request.
func (c *List) Remove(m *Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m.previous.next, m.next.previous = m.next, m.previous
	m.previous, m.next = nil, nil
}

// Oldest is the age of the oldest request; 0 if there is none.
func (c *List) Oldest(now time.Time) (age time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for m := range c.oldestLocked(1) {
		age = max(now.Sub(m.Since), 0)
	}
	return age
}

// maxAgesScanned bounds the work of a refusal. The list of a prefix with
// placeholders has requests of many queues.
const maxAgesScanned = 256

// Ages are the ages of the requests in one queue, the oldest first. Only the oldest
// requests of the list are considered.
func (c *List) Ages(queue string, now time.Time) (ages []time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for m := range c.oldestLocked(maxAgesScanned) {
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
	for m := range c.oldestLocked(maxAgesScanned) {
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

// oldestLocked are at most n requests, the oldest first.
func (c *List) oldestLocked(n int) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		for m := c.ring.next; n > 0 && m != nil && m != &c.ring && yield(m); n-- {
			m = m.next
		}
	}
}

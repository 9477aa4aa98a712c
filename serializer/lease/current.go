package lease

import (
	"context"
	"sync"
)

// Current is the session that a store has at the moment, or why it has none. At first, the
// store is about to request a lease. All methods may be called from many goroutines.
type Current[S any] struct {
	mu      sync.Mutex
	session *S
	failure error
	changed chan struct{} // closed when something changes; nil if nobody waits
}

// Set notes the session, or why there is none. Neither means that one is being requested.
// It reports whether the failure is another one than before.
func (c *Current[S]) Set(session *S, failure error) (isNew bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	isNew = failure != nil && (c.failure == nil || c.failure.Error() != failure.Error())
	c.session, c.failure = session, failure
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
	return isNew
}

// Get returns the session, or nil.
func (c *Current[S]) Get() *S {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// Await returns the session, or the failure. While a session is being requested, it waits.
func (c *Current[S]) Await(ctx context.Context) (*S, error) {
	for {
		session, changed, failure := c.look()
		if session != nil || failure != nil {
			return session, failure
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (c *Current[S]) look() (session *S, changed <-chan struct{}, failure error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.session, c.changed, c.failure
}

package etcd

import "github.com/orderly-http/caddy-orderly/serializer"

// Count implements [serializer.Counter]. waiting is of this process only; inside
// is what this process knows, which may be nothing while nobody here waits.
func (e *Engine) Count(queue string) (inside, waiting int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.session == nil || e.session.queues[queue] == nil {
		return 0, 0
	}
	q := e.session.queues[queue]
	return q.Inside(), q.LocalWaiting()
}

// Interface guard
var _ serializer.Counter = (*Engine)(nil)

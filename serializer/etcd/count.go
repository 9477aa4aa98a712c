package etcd

import "github.com/orderly-http/caddy-orderly/serializer"

// Count implements [serializer.Counter]. waiting counts only this process. inside
// counts what this process knows of, which may be nothing while nobody waits here.
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

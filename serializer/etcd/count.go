package etcd

import "github.com/orderly-http/caddy-orderly/serializer"

// Count implements [serializer.Counter]. It knows of those who wait in this
// process.
func (e *Engine) Count(queue string) (inside, waiting int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.session == nil || e.session.lines[queue] == nil {
		return 0, 0
	}
	l := e.session.lines[queue]
	return l.admitted, l.waiting
}

// Interface guard
var _ serializer.Counter = (*Engine)(nil)

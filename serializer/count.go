package serializer

// Counter is an [Engine] that can say in an instant how many are in a queue. It is
// optional: the Caddy plugin refuses a request of a full queue before it reads its
// body if the engine is a Counter, and else only when the request asks for its turn.
type Counter interface {
	// Count returns how many are inside a queue, and how many wait. It asks
	// nobody else and never waits for others: there may be more than it knows
	// of, but those it counts as waiting are in the way of an arrival now.
	Count(queue string) (inside, waiting int)
}

// Count implements [Counter].
func (m *Memory) Count(queue string) (inside, waiting int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lines[queue].counts()
}

// Count implements [Counter]. While the engine does not work in the directory,
// it knows of nobody.
func (f *File) Count(queue string) (inside, waiting int) {
	d := f.current()
	if d == nil {
		return 0, 0
	}
	defer f.release(d)
	if d.observe(false) != nil {
		return 0, 0 // whoever takes a ticket learns of the error
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return d.lines[queue].counts()
}

// Interface guards
var (
	_ Counter = (*Memory)(nil)
	_ Counter = (*File)(nil)
)

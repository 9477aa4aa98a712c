package serializer

// events is an engine as its store sees it.
type events struct{ *Engine }

// Joined implements [Events].
func (e events) Joined(t *Ticket) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t.state == over { // its caller has given up
		return false
	}
	q := e.openLocked(t.Queue)
	t.position = q.length
	switch {
	case e.closed:
		e.refuseLocked(t, e.closedError())
	case t.isFull(q.waiting()):
		e.refuseLocked(t, ErrFull)
	default:
		t.joined, t.state = true, waiting
		e.insertLocked(t, q)
		if t.noWait && t.state == waiting {
			t.joined = false
			e.refuseLocked(t, ErrNotFree)
		}
	}
	return t.joined
}

// Appeared implements [Events].
func (e events) Appeared(t *Ticket) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.insertLocked(t, e.openLocked(t.Queue))
}

// Vanished implements [Events].
func (e events) Vanished(t *Ticket) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t.in != nil {
		e.takeOutLocked(t)
	}
}

// Removed implements [Events].
func (e events) Removed(t *Ticket) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch t.state {
	case waiting, seeking:
		e.refuseLocked(t, ErrEvicted)
	case inside:
		t.revokeLocked(ErrLost)
	}
}

// Evict implements [Events].
func (e events) Evict(queue string, number uint64) bool {
	remote, err := e.evictLocal(queue, number)
	return err == nil && remote == nil
}

// Lost implements [Events]. It empties all queues, except for the holders of this process. These
// have not left yet, so tickets that this process takes from now on must wait for them.
func (e events) Lost(cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	refused, revoked := e.endLocked(cause)
	go e.log.Warn("the claim on the queues was lost; holders are told to stop, and waiters are refused",
		"path", e.Path(), "inside", revoked, "waiting", refused, "error", cause)
	for _, q := range e.queues {
		for t := range q.all() {
			if t.Local() {
				t.lost = true
				continue
			}
			t.in = nil
			q.remove(t)
		}
		q.setPaused(!e.pauses.end(q.name).IsZero())
		e.advanceLocked(q)
	}
}

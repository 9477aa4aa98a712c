package serializer

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"sync"
	"time"
)

// Memory keeps queues within one process, without a disk. A restart empties them, and
// other processes know nothing of them. It is the simplest engine, and the reference
// for the others.
type Memory struct {
	path  string
	clock func() time.Time
	waits waits

	mu      sync.Mutex
	queues  ticketQueues
	unpause *time.Timer // runs at the first end of a pause
	last    uint64
	closed  bool
}

// MemoryOptions adjust a [Memory]. The zero value suits most uses.
type MemoryOptions struct {
	Path  string           // returned by Path; empty means "memory"
	Clock func() time.Time // the time for ticket numbers, which must not call the engine; nil means [time.Now]
}

// NewMemory makes an engine without queues.
func NewMemory(o MemoryOptions) *Memory {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	return &Memory{path: cmp.Or(o.Path, "memory"), clock: o.Clock, queues: newTicketQueues()}
}

// Enter implements [Engine].
func (m *Memory) Enter(ctx context.Context, a Arrival) (Turn, error) {
	t := newTicket(m, &a)
	if err := m.arrive(t); err != nil {
		return nil, t.refused(err)
	}
	if a.Joined != nil {
		a.Joined()
	}
	if err := m.waits.await(ctx, t.waiter, a.Timeout); err != nil && !m.settle(t, err) {
		return nil, t.refused(err)
	}
	return t, nil
}

// Join implements [Joiner].
func (m *Memory) Join(a Arrival, done func(Turn, error)) Wait {
	return joinQueue(m, &m.waits.timeouts, a, done)
}

// arrive implements [ticketEngine].
func (m *Memory) arrive(t *ticket) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	q := m.queues.open(t.Prefix)
	m.queues.noteGroup(q, t.group)
	t.position = q.Len()
	if t.max > 0 && q.Waiting() >= t.max {
		return ErrFull
	}
	m.last = nextStamp(m.clock(), m.last)
	t.Stamp = m.last
	q.insert(t)
	m.advanceLocked(q)
	if t.joined == nil && t.outcome.Load() == pending {
		t.ready = m.waits.channel()
	}
	return nil
}

// advanceLocked admits all tickets that may enter, and refuses waiters that are
// superseded. It reports whether it admitted any.
func (m *Memory) advanceLocked(q *ticketQueue) (granted bool) {
	granted = q.advance((*ticket).grant)
	for t := q.Superseded(0); t != nil; t = q.Superseded(0) {
		q.remove(t)
		t.refuse(ErrSuperseded)
		granted = q.advance((*ticket).grant) || granted
	}
	return granted
}

// settle implements [ticketEngine].
func (m *Memory) settle(t *ticket, err error) (turn bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t.Admitted() && err == ErrTimeout {
		return true
	}
	m.removeLocked(t)
	return false
}

// leave implements [ticketEngine].
func (m *Memory) leave(t *ticket) {
	m.mu.Lock()
	granted := m.removeLocked(t)
	m.mu.Unlock()
	if granted {
		yield()
	}
}

// removeLocked takes a ticket out and admits the next ones. It reports whether it admitted any.
func (m *Memory) removeLocked(t *ticket) (granted bool) {
	if t.out {
		return false
	}
	t.out = true
	q := t.queue
	q.remove(t)
	granted = m.advanceLocked(q)
	m.queues.closeIfEmpty(q)
	return granted
}

// Path returns [MemoryOptions.Path], or "memory" if that is empty.
func (m *Memory) Path() string { return m.path }

// Queues implements [Engine].
func (m *Memory) Queues(context.Context) ([]QueueState, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	self := ownerSeen{name: fmt.Sprintf("pid %d", os.Getpid()), alive: new(true)}
	return m.queues.states(m.path, m.clock(), func(*ticket) ownerSeen { return self }), nil
}

// Count implements [Counter].
func (m *Memory) Count(queue string) (inside, waiting int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.queues.byName[queue].counts()
}

// Evict implements [Engine].
func (m *Memory) Evict(_ context.Context, queue string, token uint64) error {
	revoke, err := m.evict(queue, token)
	if revoke != nil {
		revoke(ErrEvicted)
	}
	return err
}

func (m *Memory) evict(queue string, token uint64) (revoke func(error), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.queues.byName[queue].find(token)
	if t == nil {
		return nil, fmt.Errorf("evicting ticket %d from queue %q: %w", token, queue, ErrNoTicket)
	}
	if t.Admitted() {
		return t.takeRevoke(), nil
	}
	m.removeLocked(t)
	t.refuse(ErrEvicted)
	return nil, nil
}

// Close implements [Engine].
func (m *Memory) Close() error {
	for _, revoke := range m.close() {
		revoke(ErrClosed)
	}
	m.waits.timeouts.close()
	return nil
}

// close refuses all waiters, and returns the callbacks that revoke the holders' turns.
func (m *Memory) close() (revokes []func(error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	for _, q := range m.queues.byName {
		for t := range q.All() {
			if t.Admitted() {
				revokes = appendRevoke(revokes, t.waiter)
				continue
			}
			t.refuse(ErrClosed)
			q.remove(t)
		}
	}
	return revokes
}

// Interface guards
var (
	_ Engine  = (*Memory)(nil)
	_ Joiner  = (*Memory)(nil)
	_ Counter = (*Memory)(nil)
	_ Pauser  = (*Memory)(nil)
)

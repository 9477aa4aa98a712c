package serializer

import (
	"context"
	"time"
)

// Pause implements [Pauser].
func (m *Memory) Pause(_ context.Context, queue string, until time.Time) error {
	end, err := PauseEnd(queue, until)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	m.queues.pauses[queue] = end
	m.applyPausesLocked()
	return nil
}

// Resume implements [Pauser].
func (m *Memory) Resume(_ context.Context, queue string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.queues.pauses, queue)
	m.applyPausesLocked()
	return nil
}

// applyPausesLocked applies the current pauses to all queues. Queues whose pause is over
// admit again.
func (m *Memory) applyPausesLocked() {
	m.queues.pauses.dropEnded(time.Now())
	for _, q := range m.queues.byName {
		m.queues.setPause(q)
		m.advanceLocked(q)
	}
	if m.unpause != nil {
		m.unpause.Stop()
		m.unpause = nil
	}
	if end, ok := m.queues.pauses.next(); ok && !m.closed {
		m.unpause = time.AfterFunc(time.Until(end), m.endPauses)
	}
}

func (m *Memory) endPauses() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.applyPausesLocked()
}

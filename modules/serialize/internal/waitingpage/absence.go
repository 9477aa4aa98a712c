package waitingpage

import (
	"sync"
	"time"
)

// absences has what turns of absent browsers have cost each queue, since a browser last
// claimed one. All together may cost allowance, and leastAbsence for each. A turn waits for
// half of what is left, so each waits half as long as the one before. It waits for longer,
// but at most for what is left, if the browser is on its way by what its network needs.
//
// A browser that has not sent its cookie back costs nothing: its turn does not wait at all.
type absences struct {
	mu     sync.Mutex
	queues map[string]*absence // those where some is used up
}

type absence struct {
	left   time.Duration
	forget *time.Timer
}

const (
	allowance    = 6 * time.Second
	leastAbsence = 100 * time.Millisecond

	absencesKept = time.Minute // names of queues may come from clients
)

// absenceEnd is until when a turn waits that was offered at a moment, with so much left. The
// browser is expected at another moment.
func absenceEnd(came, expected time.Time, left time.Duration) time.Time {
	end, last := came.Add(max(left/2, leastAbsence)), came.Add(max(left, leastAbsence))
	switch {
	case expected.After(last):
		return last
	case expected.After(end):
		return expected
	}
	return end
}

// left is what turns may still cost a queue.
func (a *absences) left(queue string) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if used := a.queues[queue]; used != nil {
		return used.left
	}
	return allowance
}

// add notes that nobody has claimed a turn, which waited for a duration.
func (a *absences) add(queue string, waited time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	used := a.queues[queue]
	if used == nil {
		used = &absence{left: allowance, forget: time.AfterFunc(absencesKept, func() { a.end(queue) })}
		if a.queues == nil {
			a.queues = make(map[string]*absence)
		}
		a.queues[queue] = used
	}
	used.left = max(used.left-waited, 0)
	used.forget.Reset(absencesKept)
}

// end notes that a browser has claimed its turn.
func (a *absences) end(queue string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if used := a.queues[queue]; used != nil {
		used.forget.Stop()
		delete(a.queues, queue)
	}
}

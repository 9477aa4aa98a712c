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
// The same is kept for each client of a queue. So a client that leaves its turns unclaimed
// does not get more time because others claim theirs.
//
// A browser that has not sent its cookie back costs nothing: its turn does not wait at all.
type absences struct {
	mu    sync.Mutex
	costs map[absent]*absence // where some is used up
}

// absent is a queue, or a client in it.
type absent struct{ queue, client string }

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
	return came.Add(min(max(left/2, leastAbsence, expected.Sub(came)), max(left, leastAbsence)))
}

// left is what the turns of a client may still cost a queue.
func (a *absences) left(queue, client string) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	least := allowance
	for _, of := range [...]absent{{queue, ""}, {queue, client}} {
		if used := a.costs[of]; used != nil {
			least = min(least, used.left)
		}
	}
	return least
}

// add notes that a client has not claimed a turn, which waited for a duration.
func (a *absences) add(queue, client string, waited time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.addLocked(absent{queue, ""}, waited)
	if client != "" {
		a.addLocked(absent{queue, client}, waited)
	}
}

func (a *absences) addLocked(of absent, waited time.Duration) {
	used := a.costs[of]
	if used == nil {
		used = &absence{left: allowance, forget: time.AfterFunc(absencesKept, func() { a.end(of.queue, of.client) })}
		if a.costs == nil {
			a.costs = make(map[absent]*absence)
		}
		a.costs[of] = used
	}
	used.left = max(used.left-waited, 0)
	used.forget.Reset(absencesKept)
}

// end notes that a client has claimed a turn, or came for one that had just been given up:
// it waited too short for the client's network.
func (a *absences) end(queue, client string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, of := range [...]absent{{queue, ""}, {queue, client}} {
		if used := a.costs[of]; used != nil {
			used.forget.Stop()
			delete(a.costs, of)
		}
	}
}

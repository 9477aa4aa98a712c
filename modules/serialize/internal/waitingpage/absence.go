package waitingpage

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// absences has what turns of absent browsers have cost each queue, since a browser last
// claimed one. All together may cost an allowance, and leastAbsence for each. A turn waits for
// half of what is left, so each waits half as long as the one before. It waits for longer,
// but at most for what is left, if the browser is on its way by what its network needs.
//
// Turns that are visits have a larger allowance, but at most a tenth of the places may wait so.
//
// The same is kept for each client of a queue. So a client that leaves its turns unclaimed
// does not get more time because others claim theirs.
//
// And it is kept apart for browsers that were here when their turns came: many turns may come
// at once, and these browsers must not be too late because others have gone. So those that have gone can use
// up half of what these have, and these all of what those have. One client can use up half of what others have.
//
// A browser that has not sent its cookie back costs nothing: its turn does not wait at all.
type absences struct {
	mu      sync.Mutex
	costs   map[absent]absence // where some is used up
	cleaned time.Time          // when costs were looked through, which may be many
	long    map[string]int     // how many turns of a queue have the larger allowance now
}

// absent is a queue, or a client in it.
type absent struct {
	queue, client string
	here          bool // when the turn came
}

// both are the queue, and the client in it, if its address is known.
func (of absent) both() []absent { return slices.Compact([]absent{{of.queue, "", of.here}, of}) }

type absence struct {
	used     float64 // of the allowance, from 0 to 1
	latest   time.Time
	counted  time.Time // what turns side by side have cost, until then
	forgiven bool      // since a turn was claimed
}

const (
	allowance      = 6 * time.Second
	visitAllowance = 60 * time.Second
	leastAbsence   = 100 * time.Millisecond

	absencesKept = time.Minute // names of queues may come from clients
)

// absenceEnd is until when a turn waits for its browser. It was offered at the moment came, with
// left of the allowance. The browser is expected at another moment.
func absenceEnd(came, expected time.Time, left time.Duration) time.Time {
	network := min(expected.Sub(came), allowance)
	return came.Add(min(max(left/2, leastAbsence, network), max(left, leastAbsence)))
}

func (t *Ticket) absences() *absences { return &t.places().absences }

func (t *Ticket) absent() absent { return absent{t.about.Queue, t.about.Described.ClientIP, t.wasHere} }

// offer gives an allowance to a turn, until it is settled, and says what is left of it. The larger one
// is for visits: places is how many their queue has, or 0. No more than a tenth of them have it, and a
// single one never does.
func (a *absences) offer(of absent, places int) (allowed, left time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.cleaned) >= time.Second {
		maps.DeleteFunc(a.costs, func(_ absent, cost absence) bool { return time.Since(cost.latest) >= absencesKept })
		a.cleaned = time.Now()
	}
	most := 0.0
	for _, of := range of.both() {
		used := a.costs[absent{of.queue, of.client, false}].used
		if of.here {
			used = min(used, a.costs[of].used+0.5)
		}
		most = max(most, used)
	}
	allowed = allowance
	if places > 1 && a.long[of.queue] < (places+9)/10 {
		a.long[of.queue]++
		allowed = visitAllowance
	}
	return allowed, time.Duration(float64(allowed) * (1 - most))
}

// In place of a part: a client has claimed a turn, or came for one that had just been given up. That one may have
// waited too short for the client's network, so what was used is forgiven. But that is only what the client says: until
// a turn is claimed, it is forgiven once, and then so far that half is left, and a sixth to the client. Otherwise,
// networks that need more than leastAbsence would never claim one.
const (
	claimed = -1
	late    = -2

	usedAfterLate       = 1.0 / 2
	clientUsedAfterLate = 5.0 / 6
)

// settle takes an allowance back, and notes which part of it the turn has cost.
func (a *absences) settle(of absent, allowed time.Duration, part float64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if allowed == visitAllowance {
		if a.long[of.queue]--; a.long[of.queue] == 0 {
			delete(a.long, of.queue)
		}
	}
	if part > 0 {
		a.chargeLocked(of, allowed, part)
	}
	if part > 0 && of.here {
		a.chargeLocked(absent{of.queue, of.client, false}, allowed, part)
	}
	for _, here := range []bool{true, false} {
		of.here = here
		for _, of := range of.both() {
			cost, most := a.costs[of], usedAfterLate
			if of.client != "" {
				most = clientUsedAfterLate
			}
			switch {
			case part == claimed:
				cost.used, cost.forgiven = 0, false
			case part == late && cost.forgiven:
				cost.used = min(cost.used, most)
			case part == late:
				cost.used, cost.forgiven = 0, true
			default:
				continue
			}
			cost.latest = time.Now()
			a.costs[of] = cost
		}
	}
}

// chargeLocked notes what a turn has cost a queue and a client in it.
func (a *absences) chargeLocked(of absent, allowed time.Duration, part float64) {
	queue := absent{of.queue, "", of.here}
	if of != queue {
		before := a.costs[of].used
		part = max(min(a.addLocked(of, allowed, part), 0.5)-before, 0)
	}
	a.addLocked(queue, allowed, part)
}

// addLocked adds a part. Of turns that have waited side by side, each costs only what the one before has left.
func (a *absences) addLocked(of absent, allowed time.Duration, part float64) (used float64) {
	cost := a.costs[of]
	part = min(part, time.Since(cost.counted).Seconds()/allowed.Seconds())
	cost.used, cost.latest = min(cost.used+part, 1), time.Now()
	if part > 0 {
		cost.counted = cost.latest
	}
	a.costs[of] = cost
	return cost.used
}

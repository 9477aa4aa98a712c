package telemetry

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// The bounds of Retry-After, in seconds. The time until the end of a pause is added, up to a
// bound of its own: an operator may end the pause before.
const (
	minRetryAfter = 1
	maxRetryAfter = 120
	maxPauseLeft  = 3600
)

// RetryAfter is the header's value for a refused request. ahead is how many tickets the queue has.
// capacity is how many may be inside; 0 is not known. ages are those of the requests inside, the oldest
// first. least is how long each hold takes at least. pausedUntil is when the queue's pause ends, or nil.
func (e *Estimate) RetryAfter(ahead, capacity int, ages []time.Duration, least time.Duration, pausedUntil *time.Time, now time.Time) string {
	wait := float64(ahead+1) / e.pace(capacity, least, ages)
	wait = min(max(wait, minRetryAfter), maxRetryAfter)
	switch {
	case pausedUntil == nil:
	case pausedUntil.Before(serializer.Forever):
		wait += min(max(pausedUntil.Sub(now).Seconds(), 0), maxPauseLeft)
	default:
		wait = maxRetryAfter
	}
	return strconv.Itoa(int(math.Ceil(wait)))
}

// Estimate is what holds have been like: moving averages in seconds.
type Estimate struct {
	mu             sync.Mutex
	count          int // of holds, up to holdsAveraged
	mean, variance float64
}

const (
	holdsAveraged = 16 // more would notice later that holds have become longer
	holdsKnown    = 5  // fewer do not show how much holds differ
)

func (e *Estimate) add(d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.count = min(e.count+1, holdsAveraged)
	share, off := 1/float64(e.count), d.Seconds()-e.mean
	e.mean = max(e.mean+share*off, time.Nanosecond.Seconds())
	e.variance = (1 - share) * (e.variance + share*off*off)
}

func (e *Estimate) averages() (count int, mean, variance float64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.count, e.mean, e.variance
}

// Guess is how many seconds it takes until the waiter of a number enters. still is for how long it
// has had this number. ages are those of the requests inside, the oldest first. If they are fewer than the capacity, requests of
// other processes are inside, somewhere in their holds.
//
// The result is 0 if no good guess is possible. A good guess is right within a third, and
// nearly always within half, so the wait must be six standard deviations or more. If a hold has
// taken much longer than usual, nobody knows how long it will take. That of another process
// shows only by a number that has not changed for as long.
func (e *Estimate) Guess(number, capacity int, ages []time.Duration, still time.Duration) float64 {
	count, mean, variance := e.averages()
	longest := slices.Max(append(ages, still)).Seconds()
	if capacity == 0 || number == 0 || count < holdsKnown || longest > 1.1*mean+2*math.Sqrt(variance) {
		return 0
	}
	elsewhere := max(capacity-len(ages), 0)
	half := time.Duration(mean / 2 * float64(time.Second)) // of holds elsewhere, which have begun at any time
	ages = append(ages, slices.Repeat([]time.Duration{half}, min(elsewhere, number))...)
	slices.SortFunc(ages, func(a, b time.Duration) int { return cmp.Compare(b, a) })
	rounds, next := (number-1)/capacity, (number-1)%capacity
	wait := float64(rounds)*mean + max(mean-ages[next].Seconds(), 0)
	spread := math.Sqrt(float64(number)*variance+float64(elsewhere)*mean*mean/12) / float64(capacity)
	if wait < minRetryAfter || wait < 6*spread {
		return 0
	}
	return wait
}

// unknownHold is the least estimate of a hold until the first one has ended.
const unknownHold = time.Second

// pace is the expected number of turns a second. If the capacity is not known, it is the
// number inside now: writers are alone inside, and readers are not.
//
// Each unit of capacity hands over after a hold of the usual length. Until the first has
// ended, that is the longest of the ages of those inside. A hold that has taken longer
// already is expected to take as long again. So a unit that is stuck hands over next to
// nothing.
func (e *Estimate) pace(capacity int, least time.Duration, ages []time.Duration) (turns float64) {
	count, usual, _ := e.averages()
	if count == 0 {
		usual = slices.Max(append(ages, unknownHold)).Seconds()
	}
	usual = max(usual, least.Seconds())
	units := cmp.Or(capacity, max(len(ages), 1))
	taken := ages[:min(len(ages), units)]
	for _, age := range taken {
		turns += 1 / max(usual, age.Seconds())
	}
	return turns + float64(units-len(taken))/usual
}

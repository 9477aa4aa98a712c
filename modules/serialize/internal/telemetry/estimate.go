package telemetry

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
)

// The bounds of Retry-After, in seconds.
const (
	minRetryAfter = 1
	maxRetryAfter = 120
)

// RetryAfter is the header's value for a refused request. capacity is how many may be
// inside; 0 is not known.
func (s *Stats) RetryAfter(queue string, position, capacity int, now time.Time) string {
	inside := s.Holds.Ages(queue, now)
	wait := s.hold.wait(position, capacity, inside)
	return strconv.Itoa(int(min(max(math.Ceil(wait.Seconds()), minRetryAfter), maxRetryAfter)))
}

// Guess is how many seconds it takes until the waiter of a number enters; 0 is not known.
func (s *Stats) Guess(queue string, number, capacity int) float64 {
	if s.hold.nanoseconds.Load() == 0 {
		return 0
	}
	return float64(number) / s.hold.pace(capacity, s.Holds.Ages(queue, time.Now()))
}

// holdEstimate is a moving average of the time that requests are inside.
type holdEstimate struct{ nanoseconds atomic.Int64 } // 0 until the first has left

func (e *holdEstimate) add(d time.Duration) {
	// A lost update between two requests does not matter for an estimate.
	old := e.nanoseconds.Load()
	if old == 0 {
		e.nanoseconds.Store(max(int64(d), 1))
		return
	}
	e.nanoseconds.Store(max(old+(int64(d)-old)/8, 1))
}

// unknownHold is the least estimate of a hold until the first one has ended.
const unknownHold = time.Second

// usual is the estimated length of a hold. Until the first has ended, it is the
// longest of the ages of those inside.
func (e *holdEstimate) usual(ages []time.Duration) time.Duration {
	if known := e.nanoseconds.Load(); known > 0 {
		return time.Duration(known)
	}
	return slices.Max(append(ages, unknownHold))
}

// wait estimates how long it takes until position others and one more have left a
// queue with a capacity. ages are those of the requests inside, the oldest first.
func (e *holdEstimate) wait(position, capacity int, ages []time.Duration) time.Duration {
	return time.Duration(min(float64(position+1)/e.pace(capacity, ages), maxRetryAfter) * float64(time.Second))
}

// pace is the expected number of turns a second. If the capacity is not known, it is the
// number inside now: writers are alone inside, and readers are not.
//
// Each unit of capacity hands over after a hold of the usual length. A hold that has
// taken longer already is expected to take as long again. So a unit that is stuck
// hands over next to nothing.
func (e *holdEstimate) pace(capacity int, ages []time.Duration) (turns float64) {
	usual := e.usual(ages)
	for i := range cmp.Or(capacity, max(len(ages), 1)) {
		hold := usual
		if i < len(ages) {
			hold = max(hold, ages[i])
		}
		turns += 1 / hold.Seconds()
	}
	return turns
}

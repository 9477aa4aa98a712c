package serialize

import (
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

// retryAfter is the header's value for a request that is refused by a queue with
// position others ahead of it.
func (s *Handler) retryAfter(queue string, position int, now time.Time) string {
	inside := s.meters.stats.inside.ages(queue, now)
	wait := s.meters.holds.wait(position, s.places(len(inside)), inside)
	seconds := min(max(math.Ceil(wait.Seconds()), minRetryAfter), maxRetryAfter)
	return strconv.Itoa(int(seconds))
}

// places is how many may be inside, as a guess where there are readers: writers
// are alone, readers are not, and so many are inside now.
func (s *Handler) places(inside int) int {
	if len(s.SharedMethods) == 0 {
		return s.Concurrency
	}
	return max(inside, 1)
}

// holdEstimate is a moving average of how long requests stay inside.
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

// unknownHold is the least that a hold is taken for until the first has ended.
const unknownHold = time.Second

// usual is how long a request stays inside. Until the first has left, it is the
// longest of the ages of those inside.
func (e *holdEstimate) usual(ages []time.Duration) time.Duration {
	if known := e.nanoseconds.Load(); known > 0 {
		return time.Duration(known)
	}
	return slices.Max(append(ages, unknownHold))
}

// wait guesses how long it takes until position others and one more have left
// through so many places inside. Of those inside, ages are known, the oldest first.
//
// A place gives a turn to the next one after each hold of the usual length. One
// that has been held for longer already is expected to go on as long again as it
// did so far: it gives turns at that slower pace, and a place that is stuck gives
// next to none.
func (e *holdEstimate) wait(position, places int, ages []time.Duration) time.Duration {
	usual := e.usual(ages)
	turns := 0.0 // a second
	for i := range places {
		hold := usual
		if i < len(ages) {
			hold = max(hold, ages[i])
		}
		turns += 1 / hold.Seconds()
	}
	return time.Duration(min(float64(position+1)/turns, maxRetryAfter) * float64(time.Second))
}

package statuspage

import (
	"sync"
	"sync/atomic"
	"time"
)

// The status page shows this many spans of time.
const (
	recentSpan  = 5 * time.Second
	recentSpans = 120
	lastMinute  = int(time.Minute / recentSpan)
)

// Recent counts the outcomes of the last ten minutes in a ring of spans. Counting a
// request takes a few atomic additions and no lock, except for the first in a span.
type Recent struct {
	ring [recentSpans]span
	mu   sync.Mutex // held while a span is reused
}

// span counts what happened within five seconds.
type span struct {
	number           atomic.Int64 // of the span, see spanNumber
	entered, refused atomic.Int64
	failed           atomic.Int64 // of the refused: because the storage failed
	waited, longest  atomic.Int64 // nanoseconds, of those that entered
}

// Entered notes that a request has entered.
func (r *Recent) Entered(now time.Time, waited time.Duration) {
	s := r.at(now)
	s.entered.Add(1)
	s.waited.Add(int64(waited))
	for longest := s.longest.Load(); int64(waited) > longest; longest = s.longest.Load() {
		if s.longest.CompareAndSwap(longest, int64(waited)) {
			return
		}
	}
}

// Refused notes that a request was refused; failed says that the storage has failed.
func (r *Recent) Refused(now time.Time, failed bool) {
	s := r.at(now)
	s.refused.Add(1)
	if failed {
		s.failed.Add(1)
	}
}

// secondsTo1970 is the time between the year 1 and 1970.
const secondsTo1970 = 62_135_596_800

// spanNumber counts spans from the year 1. Counted from 1970, the number and so the
// index into the ring would be negative while the clock is not set.
func spanNumber(t time.Time) int64 {
	return (t.Unix() + secondsTo1970) / int64(recentSpan/time.Second)
}

// at returns the span of a time, empty if it is new.
func (r *Recent) at(now time.Time) *span {
	number := spanNumber(now)
	s := &r.ring[number%recentSpans]
	if s.number.Load() == number {
		return s
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.number.Load() < number { // if the clock was set back, the old span goes on
		s.entered.Store(0)
		s.refused.Store(0)
		s.failed.Store(0)
		s.waited.Store(0)
		s.longest.Store(0)
		s.number.Store(number)
	}
	return s
}

// Counts are the spans up to now, the oldest first.
type Counts struct {
	Entered []int64   `json:"entered"`         // requests that entered
	Refused []int64   `json:"refused"`         // requests that were refused
	Failed  []int64   `json:"failed"`          // of the refused: because the storage failed
	Mean    []float64 `json:"wait_mean_ms"`    // of those that entered
	Longest []float64 `json:"wait_longest_ms"` // of those that entered
}

// Counts reads the ring.
func (r *Recent) Counts(now time.Time) Counts {
	c := Counts{
		Entered: make([]int64, recentSpans), Refused: make([]int64, recentSpans), Failed: make([]int64, recentSpans),
		Mean: make([]float64, recentSpans), Longest: make([]float64, recentSpans),
	}
	last := spanNumber(now)
	for i := range recentSpans {
		number := last - recentSpans + 1 + int64(i)
		s := &r.ring[number%recentSpans]
		if s.number.Load() != number {
			continue // nothing happened then
		}
		c.Refused[i], c.Failed[i] = s.refused.Load(), s.failed.Load()
		if n := s.entered.Load(); n > 0 {
			c.Entered[i] = n
			c.Mean[i] = inMilliseconds(s.waited.Load() / n)
			c.Longest[i] = inMilliseconds(s.longest.Load())
		}
	}
	return c
}

// AllEntered is how many requests have entered.
func (c *Counts) AllEntered() int64 { return sum(c.Entered) }

// MeanNow is the mean wait of those that entered in the last minute, in
// milliseconds.
func (c *Counts) MeanNow() float64 {
	entered, waited := int64(0), 0.0
	for i := recentSpans - lastMinute; i < recentSpans; i++ {
		entered += c.Entered[i]
		waited += c.Mean[i] * float64(c.Entered[i])
	}
	return waited / float64(max(entered, 1))
}

func sum(numbers []int64) (total int64) {
	for _, n := range numbers {
		total += n
	}
	return total
}

func inMilliseconds(nanoseconds int64) float64 {
	return float64(time.Duration(nanoseconds).Microseconds()) / 1000
}

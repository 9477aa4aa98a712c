package telemetry

import (
	"sync"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// SampleInterval is the time between two samples of a prefix.
const SampleInterval = 5 * time.Second

const samplesKept = int(10 * time.Minute / SampleInterval)

// Sample is what the queues of a prefix were like at a time.
type Sample struct {
	Waiting, Inside uint32
	Refused         uint32 // since the sample before
}

// history has the samples of the last ten minutes. It takes 1.5 KB.
type history struct {
	mu      sync.Mutex
	ring    [samplesKept]Sample // by the number of the interval since the prefix is known
	newest  int
	refused uint32 // until the newest sample
}

// Sample records what the queues are like. If that comes late, the samples that were missed
// stay empty.
func (s *Counters) Sample(now time.Time) {
	h := &s.history
	h.mu.Lock()
	defer h.mu.Unlock()
	this := int(now.Sub(s.Created) / SampleInterval)
	for next := max(h.newest, this-samplesKept) + 1; next <= this; next++ {
		h.ring[next%samplesKept] = Sample{}
	}
	refused := s.refusals()
	sample := &h.ring[this%samplesKept]
	sample.Waiting, sample.Inside = uint32(s.Waiting.Load()), uint32(s.Inside.Load())
	sample.Refused += refused - h.refused
	h.newest, h.refused = this, refused
}

// refusals are how many requests were refused, but for those whose clients had left.
func (s *Counters) refusals() (count uint32) {
	for _, reason := range append(serializer.Reasons(), ReasonVisitEnded) {
		if reason != serializer.ReasonGone {
			count += uint32(s.outcomes[string(reason)].count.Load())
		}
	}
	return count
}

// History has the samples of the last ten minutes, or since the prefix is known, the oldest
// first.
func (s *Counters) History() []Sample {
	h := &s.history
	h.mu.Lock()
	defer h.mu.Unlock()
	samples := make([]Sample, 0, samplesKept)
	for i := max(h.newest-samplesKept+1, 0); i <= h.newest; i++ {
		samples = append(samples, h.ring[i%samplesKept])
	}
	return samples
}

package telemetry

import (
	"slices"
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
	samples [samplesKept]Sample // the latest comes last
	count   int                 // how many of them there are
	refused uint32              // until the latest
}

// Sample records what the queues are like.
func (s *Counters) Sample() {
	h := &s.history
	h.mu.Lock()
	defer h.mu.Unlock()
	latest := s.sampleLocked()
	copy(h.samples[:], h.samples[1:])
	h.samples[samplesKept-1], h.count = latest, min(h.count+1, samplesKept)
	h.refused += latest.Refused
}

func (s *Counters) sampleLocked() Sample {
	return Sample{uint32(s.Waiting.Load()), uint32(s.Inside.Load()), s.refusals() - s.history.refused}
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

// History has the samples of the last ten minutes, or since the prefix is known, and one of now, the
// oldest first.
func (s *Counters) History() []Sample {
	h := &s.history
	h.mu.Lock()
	defer h.mu.Unlock()
	return append(slices.Clone(h.samples[samplesKept-h.count:]), s.sampleLocked())
}

package telemetry

import (
	"slices"
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

// Sample records what the queues are like.
func (s *Counters) Sample() {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.historyLocked()
	s.samples = all[max(len(all)-samplesKept, 0):]
	s.refused += all[len(all)-1].Refused
}

// History has the samples of the last ten minutes, or since the prefix is known, and one of now, the
// oldest first.
func (s *Counters) History() []Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.historyLocked()
}

func (s *Counters) historyLocked() []Sample {
	now := Sample{uint32(s.Waiting.Load()), uint32(s.Inside.Load()), s.refusals() - s.refused}
	return slices.Concat(s.samples, []Sample{now})
}

// refusals are how many requests were refused, but for those whose clients had left.
func (s *Counters) refusals() (count uint32) {
	for _, reason := range append(serializer.Reasons(), ReasonVisitEnded) {
		if reason != serializer.ReasonGone {
			count += uint32(s.Outcomes[string(reason)].Count.Load())
		}
	}
	return count
}

package telemetry

import (
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// The history has the last ten minutes, whenever the samples were taken.
func TestHistory(t *testing.T) {
	s := NewCounters("history_")
	defer s.Forget()
	sample := func(after time.Duration, waiting int64, refused ...serializer.Reason) {
		s.Waiting.Store(waiting)
		for _, reason := range refused {
			s.Count(string(reason))
		}
		s.Sample(s.Created.Add(after))
	}
	want := func(when string, samples []Sample) {
		t.Helper()
		if got, expected := fmt.Sprint(s.History()), fmt.Sprint(samples); got != expected {
			t.Errorf("%s: the history is %s; expected %s", when, got, expected)
		}
	}
	sample(0, 1)
	sample(SampleInterval, 2, serializer.ReasonTimeout, serializer.ReasonGone)
	sample(SampleInterval+time.Second, 3, serializer.ReasonFull, ReasonVisitEnded)
	want("two in an interval", []Sample{{Waiting: 1}, {Waiting: 3, Refused: 3}})
	sample(4*SampleInterval, 0)
	want("some missed", []Sample{{Waiting: 1}, {Waiting: 3, Refused: 3}, {}, {}, {}})
	sample(time.Duration(samplesKept+1)*SampleInterval, 4)
	last := make([]Sample, samplesKept)
	last[samplesKept-1].Waiting = 4
	want("ten minutes later", last)
	sample(time.Hour, 5)
	last[samplesKept-1].Waiting = 5
	want("all missed", last)
	if size := unsafe.Sizeof(s.history); size > 2048 {
		t.Errorf("the history of a prefix takes %d bytes; at most 2 KB are promised", size)
	}
}

package telemetry

import (
	"slices"
	"testing"
	"unsafe"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// The history has the last ten minutes, and what has happened since.
func TestHistory(t *testing.T) {
	s := NewCounters("history_")
	defer s.Forget()
	s.Count(string(serializer.ReasonGone)) // is no refusal
	s.Count(string(serializer.ReasonTimeout))
	s.Waiting.Store(1)
	s.Sample()
	s.Count(string(ReasonVisitEnded))
	if got := s.History(); !slices.Equal(got, []Sample{{Waiting: 1, Refused: 1}, {Waiting: 1, Refused: 1}}) {
		t.Errorf("the history is %v", got)
	}
	for range samplesKept {
		s.Sample()
	}
	if got := s.History(); len(got) != samplesKept+1 || got[0].Refused != 1 || got[1].Refused != 0 {
		t.Errorf("ten minutes later, the history is %v", got)
	}
	if size := uintptr(cap(s.samples)) * unsafe.Sizeof(Sample{}); size > 2000 {
		t.Errorf("the history of a prefix takes %d bytes; at most 2 KB are promised", size)
	}
}

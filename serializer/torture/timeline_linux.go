package main

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// timeline has the times in which faults were in progress.
type timeline []span

// span is the time in which a fault was in progress.
type span struct {
	fault    string
	from, to int64
}

// never is a moment in the infinite future.
const never int64 = math.MaxInt64

// begin notes that a fault is in progress until the returned function is called.
func (h *harness) begin(fault string) (end func()) {
	i := 0
	h.tell(func(o *oracle) {
		i = len(o.spans)
		o.spans = append(o.spans, span{fault, now(), never})
	})
	return func() { h.tell(func(o *oracle) { o.spans[i].to = now() }) }
}

// busy reports whether a fault was in progress in a period, apart from one kind.
func (t timeline) busy(from, to int64, apart string) bool {
	return slices.ContainsFunc(t, func(s span) bool { return s.fault != apart && s.from < to && s.to > from })
}

// last describes the last faults. Times are in milliseconds since start.
func (t timeline) last(n int, start int64) (lines []string) {
	for _, s := range t[max(len(t)-n, 0):] {
		lines = append(lines, fmt.Sprintf("fault %s from %.3f for %v", s.fault, float64(s.from-start)/1e6, time.Duration(min(s.to, now())-s.from)))
	}
	return lines
}

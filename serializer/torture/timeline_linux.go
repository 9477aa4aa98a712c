package main

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// timeline records when each fault was in progress.
type timeline struct {
	mu    sync.Mutex
	spans []span
}

// span is the time in which a fault was in progress.
type span struct {
	fault    string
	from, to int64
}

// never is a moment in the infinite future.
const never int64 = math.MaxInt64

// begin notes that a fault is in progress until the returned function is called.
func (t *timeline) begin(fault string) (end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := len(t.spans)
	t.spans = append(t.spans, span{fault, now(), never})
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.spans[i].to = now()
	}
}

// any reports whether there is a fault of which is holds.
func (t *timeline) any(is func(span) bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.spans, is)
}

// busy reports whether a fault was in progress in a period, apart from one kind.
func (t *timeline) busy(from, to int64, apart string) bool {
	return t.any(func(s span) bool { return s.fault != apart && s.from < to && s.to > from })
}

// last describes the last faults. Times are in milliseconds since start.
func (t *timeline) last(n int, start int64) (lines []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.spans[max(len(t.spans)-n, 0):] {
		lines = append(lines, fmt.Sprintf("fault %s from %.3f for %v", s.fault, float64(s.from-start)/1e6, time.Duration(min(s.to, now())-s.from)))
	}
	return lines
}

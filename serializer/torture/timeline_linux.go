package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

// timeline records when each fault was in progress, and on which process.
type timeline struct {
	mu    sync.Mutex
	spans []span
}

// span is the time in which a fault was in progress.
type span struct {
	moment
	fault   string
	process int // 0 means all of them
}

// begin notes that a fault is in progress until the returned function is called.
func (t *timeline) begin(fault string, process int) (end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := len(t.spans)
	t.spans = append(t.spans, span{moment{now(), math.MaxInt64}, fault, process})
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.spans[i].to = now()
	}
}

// at notes a fault without a duration.
func (t *timeline) at(fault string, process int) { t.begin(fault, process)() }

// timelineBefore is how long before an example its timeline begins.
const timelineBefore = int64(time.Second)

// around describes the faults that were in progress in or shortly before some moments.
// They are ordered by their beginning; times are in milliseconds since start.
func (t *timeline) around(moments []moment, start int64) (lines []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	spans := slices.Clone(t.spans)
	slices.SortStableFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	for _, s := range spans {
		if slices.ContainsFunc(moments, func(m moment) bool { return s.from <= m.to && s.to >= m.from-timelineBefore }) {
			lines = append(lines, s.describe(start))
		}
	}
	return lines
}

func (s span) describe(start int64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "fault %s from %.3f", s.fault, float64(s.from-start)/1e6)
	if s.to != math.MaxInt64 {
		fmt.Fprintf(&b, " to %.3f", float64(s.to-start)/1e6)
	}
	if s.process != 0 {
		fmt.Fprintf(&b, " of process %d", s.process)
	}
	return b.String()
}

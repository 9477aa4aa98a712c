package statuspage

import (
	"sync"
	"testing"
	"time"
)

func TestRecent(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	var r Recent
	r.Entered(start, 10*time.Millisecond)
	r.Entered(start.Add(4*time.Second), 30*time.Millisecond)
	r.Refused(start.Add(5*time.Second), false)
	c := r.Counts(start.Add(5 * time.Second))
	last := recentSpans - 1
	if c.Entered[last-1] != 2 || c.Mean[last-1] != 20 || c.Longest[last-1] != 30 || c.Refused[last-1] != 0 {
		t.Errorf("first span: %d entered, mean %v, longest %v, %d refused", c.Entered[last-1], c.Mean[last-1], c.Longest[last-1], c.Refused[last-1])
	}
	if c.Entered[last] != 0 || c.Refused[last] != 1 {
		t.Errorf("second span: %d entered, %d refused", c.Entered[last], c.Refused[last])
	}
	c = r.Counts(start.Add(recentSpans * recentSpan))
	if c.Entered[0] != 0 || c.Refused[0] != 1 {
		t.Errorf("ten minutes later the oldest span has %d entered, %d refused; expected the second span", c.Entered[0], c.Refused[0])
	}
	r.Entered(start.Add(recentSpans*recentSpan), 0)
	if c = r.Counts(start.Add(recentSpans * recentSpan)); c.Entered[last] != 1 || c.Longest[last] != 0 {
		t.Errorf("a span that is used again has %d entered, longest %v", c.Entered[last], c.Longest[last])
	}
}

func TestRecentFromManyGoroutines(t *testing.T) {
	var r Recent
	now := time.Unix(1_800_000_000, 0)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for j := range 1000 {
				r.Entered(now, time.Duration(i*1000+j)*time.Millisecond)
				r.Refused(now, true)
			}
		})
	}
	group.Wait()
	c := r.Counts(now)
	last := recentSpans - 1
	if c.Entered[last] != 8000 || c.Refused[last] != 8000 || c.Longest[last] != 7999 {
		t.Errorf("%d entered, %d refused, longest %v; expected 8000, 8000, 7999", c.Entered[last], c.Refused[last], c.Longest[last])
	}
}

func BenchmarkRecent(b *testing.B) {
	var r Recent
	now := time.Now()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			r.Entered(now, time.Millisecond)
		}
	})
}

// Bug: a time before 1970 made the ring's index negative, and the page panicked. At the
// start of 1970, the ring goes back to 1969.
func TestRecentAtTheBeginningOfTime(t *testing.T) {
	for _, now := range []time.Time{time.Unix(0, 0), time.Unix(299, 0), time.Unix(-1, 0), time.Unix(-86_400, 0)} {
		var r Recent
		r.Entered(now, 20*time.Millisecond)
		r.Refused(now, true)
		c := r.Counts(now)
		last := recentSpans - 1
		if c.Entered[last] != 1 || c.Refused[last] != 1 || c.Mean[last] != 20 {
			t.Errorf("at %v: %d entered, %d refused, mean %v; expected 1, 1, 20", now.UTC(), c.Entered[last], c.Refused[last], c.Mean[last])
		}
		for i := range last {
			if c.Entered[i] != 0 || c.Refused[i] != 0 {
				t.Errorf("at %v: span %d has %d entered, %d refused; expected none", now.UTC(), i, c.Entered[i], c.Refused[i])
			}
		}
	}
}

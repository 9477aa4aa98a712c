package serialize

import (
	"slices"
	"sync"
	"testing"
	"time"
)

// The oldest age is right whoever leaves, even if a request reports its time
// late.
func TestAgeListKnowsTheOldest(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	var c ageList
	if got := c.oldest(at(9)); got != 0 {
		t.Errorf("nobody is %v old", got)
	}
	entries := make([]ageEntry, 4)
	for i, second := range []int{2, 4, 3, 1} {
		entries[i].queue = "a_"
		c.insert(&entries[i], at(second))
	}
	entries[1].queue = "b_"
	if got, want := c.ages("a_", at(10)), []time.Duration{9 * time.Second, 8 * time.Second, 7 * time.Second}; !slices.Equal(got, want) {
		t.Errorf("ages are %v; expected %v", got, want)
	}
	for _, step := range []struct {
		parts int
		want  time.Duration
	}{{2, 9 * time.Second}, {3, 8 * time.Second}, {0, 6 * time.Second}, {1, 0}} {
		c.remove(&entries[step.parts])
		if got := c.oldest(at(10)); got != step.want {
			t.Errorf("after %d has left, the oldest is %v; expected %v", step.parts, got, step.want)
		}
	}
	if !c.empty() || c.last != nil {
		t.Error("the ageList is not empty")
	}
	if c.insert(&entries[0], at(20)); c.oldest(at(10)) != 0 {
		t.Error("a clock that was set back makes a negative age")
	}
}

func TestAgeListOfManyGoroutines(t *testing.T) {
	var c ageList
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			entries := make([]ageEntry, 10)
			for range 200 {
				for i := range entries {
					c.insert(&entries[i], time.Now())
				}
				for i := range entries {
					c.remove(&entries[(i*7)%len(entries)])
				}
			}
		})
	}
	group.Wait()
	if !c.empty() || c.last != nil {
		t.Error("all have left, and the ageList is not empty")
	}
}

// BenchmarkAgeList measures what the ages in the metrics cost a request.
func BenchmarkAgeList(b *testing.B) {
	var waiting, inside ageList
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		var m ageEntry
		now := time.Now()
		for p.Next() {
			waiting.insert(&m, now)
			waiting.remove(&m)
			inside.insert(&m, now)
			inside.remove(&m)
		}
	})
}

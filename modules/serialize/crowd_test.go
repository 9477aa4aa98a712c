package serialize

import (
	"slices"
	"sync"
	"testing"
	"time"
)

// The oldest is right whoever parts, and also where a request comes late with
// its time.
func TestCrowdKnowsTheOldest(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	var c crowd
	if got := c.oldest(at(9)); got != 0 {
		t.Errorf("nobody is %v old", got)
	}
	members := make([]member, 4)
	for i, second := range []int{2, 4, 3, 1} {
		members[i].visit = &visit{queue: "a_"}
		c.join(&members[i], at(second))
	}
	members[1].visit.queue = "b_"
	if got, want := c.ages("a_", at(10)), []time.Duration{9 * time.Second, 8 * time.Second, 7 * time.Second}; !slices.Equal(got, want) {
		t.Errorf("ages are %v; expected %v", got, want)
	}
	for _, step := range []struct {
		parts int
		want  time.Duration
	}{{2, 9 * time.Second}, {3, 8 * time.Second}, {0, 6 * time.Second}, {1, 0}} {
		c.part(&members[step.parts])
		if got := c.oldest(at(10)); got != step.want {
			t.Errorf("after %d has parted, the oldest is %v; expected %v", step.parts, got, step.want)
		}
	}
	if !c.empty() || c.last != nil {
		t.Error("the crowd is not empty")
	}
	if c.join(&members[0], at(20)); c.oldest(at(10)) != 0 {
		t.Error("a clock that was set back makes a negative age")
	}
}

func TestCrowdOfManyGoroutines(t *testing.T) {
	var c crowd
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			members := make([]member, 10)
			for range 200 {
				for i := range members {
					c.join(&members[i], time.Now())
				}
				for i := range members {
					c.part(&members[(i*7)%len(members)])
				}
			}
		})
	}
	group.Wait()
	if !c.empty() || c.last != nil {
		t.Error("all have parted, and the crowd is not empty")
	}
}

// BenchmarkCrowd is what a request pays for the ages in the metrics.
func BenchmarkCrowd(b *testing.B) {
	var waiting, inside crowd
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		var m member
		now := time.Now()
		for p.Next() {
			waiting.join(&m, now)
			waiting.part(&m)
			inside.join(&m, now)
			inside.part(&m)
		}
	})
}

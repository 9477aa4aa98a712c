package agelist

import (
	"slices"
	"testing"
	"time"
)

// The oldest age is right whoever leaves, even if a request reports its time
// late.
func TestAgeListKnowsTheOldest(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	var c List
	if got := c.Oldest(at(9)); got != 0 {
		t.Errorf("nobody is %v old", got)
	}
	entries := make([]Entry, 4)
	for i, second := range []int{2, 4, 3, 1} {
		entries[i].Queue = "a_"
		c.Insert(&entries[i], at(second))
	}
	entries[1].Queue = "b_"
	if got, want := c.Ages("a_", at(10)), []time.Duration{9 * time.Second, 8 * time.Second, 7 * time.Second}; !slices.Equal(got, want) {
		t.Errorf("ages are %v; expected %v", got, want)
	}
	for _, step := range []struct {
		parts int
		want  time.Duration
	}{{2, 9 * time.Second}, {3, 8 * time.Second}, {0, 6 * time.Second}, {1, 0}} {
		c.Remove(&entries[step.parts])
		if got := c.Oldest(at(10)); got != step.want {
			t.Errorf("after %d has left, the oldest is %v; expected %v", step.parts, got, step.want)
		}
	}
	if c.first != nil || c.last != nil {
		t.Error("the List is not empty")
	}
	if c.Insert(&entries[0], at(20)); c.Oldest(at(10)) != 0 {
		t.Error("a clock that was set back makes a negative age")
	}
}

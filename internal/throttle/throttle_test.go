package throttle

import (
	"cmp"
	"testing"
	"testing/synctest"
	"time"
)

// An entry stands for its event, and for those since the entry before.
func TestThrottle(t *testing.T) {
	for _, interval := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			events := &Throttle[string]{Interval: interval}
			usual := cmp.Or(interval, time.Second)
			for i, step := range []struct {
				after time.Duration
				key   string
				want  int // that are written
			}{
				{0, "a", 1}, {0, "a", 0}, {0, "b", 1}, {usual - 1, "a", 0}, {1, "a", 3}, {2 * usual, "a", 1}, {0, "a", 0},
				{0, "b", 1}, {2 * time.Hour, "c", 1}, {0, "a", 1}, // an old burst is forgotten
			} {
				time.Sleep(step.after)
				got := 0
				events.Do(step.key, func(count int) { got = count })
				if got != step.want {
					t.Errorf("step %d: %d written; expected %d", i, got, step.want)
				}
			}
		})
	}
}

// Bug: each key was kept for an hour, and all were looked at for each entry, also where each comes once or
// twice, as those of requests do.
func TestKeysAreForgotten(t *testing.T) {
	for events, most := range map[int]int{1: 20, 2: mostKept + 20} { // of each key
		synctest.Test(t, func(t *testing.T) {
			var throttle Throttle[int]
			for i := range 2 * mostKept * events {
				throttle.Do(i/events, func(int) {})
				time.Sleep(200 * time.Millisecond / time.Duration(events))
			}
			if found := len(throttle.keys); found > most {
				t.Errorf("%d keys are kept; expected at most %d", found, most)
			}
		})
	}
}

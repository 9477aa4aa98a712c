package throttle_test

import (
	"cmp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/throttle"
)

// An entry stands for its event, and for those since the entry before.
func TestThrottle(t *testing.T) {
	for _, interval := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			events := &throttle.Throttle[string]{Interval: interval}
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

package throttle_test

import (
	"cmp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/throttle"
)

// Bug: what had happened after an entry was written only if it happened again.
func TestThrottle(t *testing.T) {
	for _, interval := range []time.Duration{0, time.Minute} {
		testThrottle(t, &throttle.Throttle[string]{Interval: interval}, cmp.Or(interval, time.Second))
	}
}

func testThrottle(t *testing.T, events *throttle.Throttle[string], interval time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		type entry struct {
			event string
			count int
		}
		written := make(chan entry, 10)
		for _, step := range []struct {
			after time.Duration
			event string // its first letter is the key; "" flushes
			want  []entry
		}{
			{0, "a1", []entry{{"a1", 1}}},
			{0, "a2", nil},
			{0, "b1", []entry{{"b1", 1}}}, // keys do not silence each other
			{interval - 1, "a3", nil},
			{2, "a4", []entry{{"a3", 2}}},
			{interval, "a5", []entry{{"a4", 1}}},
			{time.Hour, "a6", []entry{{"a5", 1}, {"a6", 1}}},
			{0, "a7", nil},
			{0, "", []entry{{"a7", 1}}},
			{time.Hour, "a8", []entry{{"a8", 1}}}, // what was flushed is not written again
		} {
			time.Sleep(step.after)
			synctest.Wait()
			if step.event == "" {
				events.Flush()
			} else {
				events.Do(step.event[:1], func(count int) { written <- entry{step.event, count} })
			}
			var got []entry
			for len(written) > 0 {
				got = append(got, <-written)
			}
			if !slices.Equal(got, step.want) {
				t.Errorf("up to event %q: written %v; expected %v", step.event, got, step.want)
			}
		}
	})
}

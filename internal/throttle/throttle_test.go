package throttle_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/throttle"
)

func TestThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events throttle.Throttle[string]
		for _, step := range []struct {
			after time.Duration
			key   string
			count int
			ok    bool
		}{
			{0, "a", 1, true},
			{0, "a", 0, false},
			{0, "b", 1, true}, // keys do not silence each other
			{time.Second - 1, "a", 0, false},
			{1, "a", 3, true},
			{time.Second - 1, "a", 0, false},
			{time.Hour, "a", 2, true},
		} {
			time.Sleep(step.after)
			if count, ok := events.Allow(step.key); count != step.count || ok != step.ok {
				t.Errorf("after %v, %s is allowed: %v, with count %d; expected %v, %d", step.after, step.key, ok, count, step.ok, step.count)
			}
		}
	})
}

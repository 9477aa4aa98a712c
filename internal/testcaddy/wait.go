package testcaddy

import (
	"context"
	"testing"
	"time"
)

// Patience is how long a test waits for an event without a promised time. It is long
// because machines under load are slow.
const Patience = time.Minute

// Eventually calls try until it returns nil, or Patience has passed.
func Eventually(t testing.TB, what string, try func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waited in vain until %s: %v", what, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Age is how many seconds ago t was.
func Age(t time.Time) float64 { return time.Since(t).Seconds() }

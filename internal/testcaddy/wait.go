package testcaddy

import (
	"context"
	"testing"
	"time"
)

// Patience is how long a test waits for what must come, but has no promised
// time. It is long because machines under load are slow.
const Patience = time.Minute

// Eventually tries until there is no error, or patience ends.
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

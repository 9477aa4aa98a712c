// Package lease is what stores with leases share. [Store] and [Session] keep what every such
// store knows: its sessions, their tickets, and what was reported. A store adds a [Protocol]:
// what it says to its servers, and how it reads what has changed.
//
// A process whose claim expires by itself, when it dies or is cut off, must notice that
// before others do. So it counts its own time: from the sending of the last renewal that
// was answered, less a margin. It counts on a clock that runs while the machine is
// suspended, as the lease does. See [Deadline].
//
// While all processes run and their clocks tick at about the same rate, no two are inside. A
// process that is stopped between two instructions cannot notice that its lease has ended.
// The upstream can: it rejects tokens smaller than the greatest it has seen.
package lease

import (
	"context"
	"fmt"
	"runtime"
	"time"
)

// RetryPause is how long to wait before a request that failed is repeated, in all stores of this kind.
const RetryPause = 100 * time.Millisecond

// DefaultTTL is the time to live of a lease.
const DefaultTTL = 10 * time.Second

// CheckTTL returns an error for a time to live that is not from 2 s to 1 h.
func CheckTTL(ttl time.Duration) error {
	if ttl < 2*time.Second || ttl > time.Hour {
		return fmt.Errorf("time to live %s; expected 2s to 1h", ttl)
	}
	return nil
}

// Sleep waits for d, or until ctx is done.
func Sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Yield lets a caller that has just left queue again: then one request takes the old ticket
// out and the new one in.
func Yield() {
	for n, begun := 0, time.Now(); n < 8 || time.Since(begun) < 30*time.Microsecond; n++ {
		runtime.Gosched()
	}
}

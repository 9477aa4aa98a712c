//go:build unix

package integration_test

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// If the process of the holder is killed, the next request is inside within 250 ms, and
// those that waited in the killed process block nobody. The machine may be busy, so the
// median of several kills counts.
func TestKillHolder(t *testing.T) {
	const kills, limit = 5, 250 * time.Millisecond
	survivor := startQueue(t, "")
	var recoveries []time.Duration
	for i := range kills {
		victim := survivor.another()
		holder, waiter, next := fmt.Sprint("holder", i), fmt.Sprint("waiter", i), fmt.Sprint("next", i)
		victim.getting("/?gate&name=" + holder)
		survivor.AwaitEntry(holder)
		victim.waiter(waiter, 2)
		answer := survivor.waiter(next, 3)
		killed := time.Now()
		victim.Kill()
		recoveries = append(recoveries, survivor.AwaitEntry(next).Entered.Sub(killed))
		survivor.wantServed(answer)
		survivor.WantNever(waiter)
		survivor.awaitTickets(0)
	}
	slices.Sort(recoveries)
	t.Logf("the next one was inside after %v", recoveries)
	if recoveries[kills/2] > limit {
		t.Errorf("the next one was inside after %v, want at most %v", recoveries, limit)
	}
}

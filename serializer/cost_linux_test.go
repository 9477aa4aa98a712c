package serializer_test

import (
	"context"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// The cost of a turn hardly depends on the number of waiters. The remaining difference is
// the machine's: thousands of callers need more memory than its caches hold. An engine
// whose cost grows with the waiters would be far off: 8,000 are 160 times 50. The test
// measures CPU time, which other processes do not affect.
func TestTurnsDoNotGrowWithTheQueue(t *testing.T) {
	const few, many, most, rounds = 50, 8000, 10, 3
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the collector's work is not the engine's
	e := newMemory()
	short, long := time.Hour, time.Hour
	for range rounds {
		short, long = min(short, turnsOf(t, e, few, processorTime)), min(long, turnsOf(t, e, many, processorTime))
	}
	ratio := float64(long) / float64(short)
	t.Logf("a turn takes %v with %d waiting and %v with %d, %.2f times as much", short, few, long, many, ratio)
	if ratio > most {
		t.Errorf("with %d waiting, a turn costs %.1f times what it does with %d", many, ratio, few)
	}
}

// processorTime returns the CPU time that this process has used, on all processors.
func processorTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// turnsOf takes turns until so many have passed, and returns what each took, by a clock. A
// holder that leaves joins the queue again.
func turnsOf(t *testing.T, e *serializer.Engine, waiting int, clock func() time.Duration) time.Duration {
	const counted = 2000
	holder := enter(t, e, arrival())
	over, end := context.WithCancel(t.Context())
	defer end()
	var used time.Duration
	var began, passed atomic.Int64
	var done sync.WaitGroup
	for range waiting {
		done.Go(func() {
			for over.Err() == nil {
				turn, err := e.Enter(over, arrival())
				if err != nil {
					return
				}
				if passed.Add(1) == counted {
					used = clock() - time.Duration(began.Load())
					end()
				}
				turn.Leave()
			}
		})
	}
	wait.Until(t, "all wait", func() bool { _, n := e.Count("a_"); return n == waiting })
	began.Store(int64(clock()))
	holder.Leave()
	done.Wait()
	return used / counted
}

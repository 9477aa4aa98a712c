package serializer_test

import (
	"runtime/debug"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// The cost of a turn hardly depends on the number of waiters: thousands of them need more
// memory than the machine's caches hold. An engine whose cost grows with them would be far
// off, for 8,000 are 160 times 50. Other processes do not affect the CPU time measured.
func TestTurnsDoNotGrowWithTheQueue(t *testing.T) {
	const few, many, most, rounds = 50, 8000, 5, 3
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the collector's work is not the engine's
	e := newMemory()
	short, long := time.Hour, time.Hour
	for range rounds {
		short, long = min(short, turnsOf(t, e, few)), min(long, turnsOf(t, e, many))
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

// turnsOf returns the CPU time of a turn while so many others wait.
func turnsOf(t *testing.T, e *serializer.Engine, waiting int) time.Duration {
	const counted = 5000
	var line []*waiter
	for range waiting + 1 {
		line = append(line, start(e, arrival()))
	}
	began := processorTime()
	for i := range counted {
		turn := line[i].enters(t)
		line = append(line, start(e, arrival()))
		turn.Leave()
	}
	used := processorTime() - began
	for _, w := range line[counted:] {
		w.enters(t).Leave()
	}
	return used / counted
}

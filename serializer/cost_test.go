package serializer_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// These tests keep the engine cheap. They count what does not depend on the machine, and
// compare times only with others of the same run. The command in the folder bench measures
// the figures themselves.

// The bounds are the current values, so that a new allocation is noticed.
func TestAllocationsOfATurn(t *testing.T) {
	if raceDetector {
		return // the race detector allocates, too
	}
	reader := ruled(serializer.Rule{Shared: true})
	reader.Timeout = 0
	for name, c := range map[string]struct {
		most float64
		turn func(*serializer.Engine)
	}{
		"Enter": {1, func(e *serializer.Engine) { enter(t, e, reader).Leave() }},
		"Join": {4, func(e *serializer.Engine) {
			left := make(chan struct{})
			e.Join(reader, func(turn serializer.Turn, _ error) { turn.Leave(); close(left) })
			<-left
		}},
	} {
		e := newMemory()
		stays := enter(t, e, reader) // so that the queue does
		n := testing.AllocsPerRun(2000, func() { c.turn(e) })
		stays.Leave()
		if n > c.most {
			t.Errorf("%s: a turn allocates %.1f times, more than %.0f", name, n, c.most)
		}
	}
}

// A waiter takes at most 2 KiB of the heap, beside the stack of its goroutine.
func TestMemoryOfOneWhoWaits(t *testing.T) {
	const crowd, most = 2000, 2 << 10
	for _, c := range []struct {
		name string
		wait func(context.Context, *serializer.Engine)
	}{
		{"Enter", func(ctx context.Context, e *serializer.Engine) { _, _ = e.Enter(ctx, arrival()) }},
		{"Join", func(ctx context.Context, e *serializer.Engine) {
			w := e.Join(arrival(), func(serializer.Turn, error) {})
			context.AfterFunc(ctx, func() { w.GiveUp(errHungUp) })
		}},
	} {
		e := newMemory()
		turn := enter(t, e, arrival())
		before := heap()
		gone, leave := context.WithCancel(t.Context())
		var done sync.WaitGroup
		for range crowd {
			done.Go(func() { c.wait(gone, e) })
		}
		holds(t, e, 1, crowd)
		each := (heap() - before) / crowd
		leave()
		done.Wait()
		turn.Leave()
		t.Logf("%s: a waiter takes %d bytes", c.name, each)
		if each > most {
			t.Errorf("%s: a waiter takes %d bytes, more than %d", c.name, each, most)
		}
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkTurn compares turns with those of a channel with room for one, which keeps no
// order that others see, no list, and no timeouts.
func BenchmarkTurn(b *testing.B) {
	for _, callers := range []int{1, 32, 8000} {
		b.Run(fmt.Sprintf("memory/callers=%d", callers), func(b *testing.B) {
			e := newMemory()
			benchmarkTurns(b, callers, func() { enter(b, e, arrival()).Leave() })
		})
		b.Run(fmt.Sprintf("channel/callers=%d", callers), func(b *testing.B) {
			inside := make(chan struct{}, 1)
			benchmarkTurns(b, callers, func() { inside <- struct{}{}; <-inside })
		})
	}
}

func benchmarkTurns(b *testing.B, callers int, turn func()) {
	b.ReportAllocs()
	var left atomic.Int64
	left.Store(int64(b.N))
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for left.Add(-1) >= 0 {
				turn()
			}
		})
	}
	group.Wait()
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
	holds(t, e, 1, waiting)
	began.Store(int64(clock()))
	holder.Leave()
	done.Wait()
	return used / counted
}

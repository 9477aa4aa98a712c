package library

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
	"github.com/orderly-http/caddy-orderly/bench/internal/proc"
)

// Footprint is work whose memory is measured, and so is that of a number of waiters.
type Footprint struct {
	Work
	Waiting int
}

func init() {
	proc.Role("footprint", func(ctx context.Context, f Footprint) (figures.Values, error) {
		values := make(figures.Values)
		if err := f.with(func(e engine) error { return f.turns(ctx, e, values) }); err != nil {
			return nil, err
		}
		return values, f.with(func(e engine) error { return f.waiters(ctx, e, values) })
	})
}

// Run measures it in a process of its own.
func (f Footprint) Run(ctx context.Context) (figures.Values, error) {
	// The runtime would give goroutines larger or smaller first stacks from one
	// collection of garbage to the next, by what others needed, and so weigh itself.
	same := proc.Tracer{Env: []string{"GODEBUG=adaptivestackstart=0"}}
	return proc.Ask[figures.Values](ctx, "footprint", f, same)
}

// turns counts the allocations of turns.
func (f Footprint) turns(ctx context.Context, e engine, values figures.Values) error {
	if err := (Work{Callers: 1, Turns: 100}).do(ctx, e); err != nil { // to warm up
		return err
	}
	before := memoryStats()
	err := f.do(ctx, e)
	after := memoryStats()
	n := float64(f.Callers * f.Turns)
	values[figures.Allocations] = float64(after.Mallocs-before.Mallocs) / n
	values[figures.Allocated] = float64(after.TotalAlloc-before.TotalAlloc) / n
	return err
}

// waiters compares callers that wait with goroutines that wait for a channel.
func (f Footprint) waiters(ctx context.Context, e engine, values figures.Values) error {
	heap, stack := 0.0, 0.0
	for range 2 { // the first crowd leaves goroutines that the next ones use again
		over := make(chan struct{})
		var gone sync.WaitGroup
		heap, stack = f.crowd(&gone, func() { <-over }, func() bool { return true })
		close(over)
		gone.Wait() // or their stacks would count as in use before the next crowd comes
	}
	turn, err := e.Enter(ctx, arrival)
	if err != nil {
		return err
	}
	defer turn.Leave()
	queuedHeap, queuedStack := f.crowd(new(sync.WaitGroup),
		func() { _, _ = e.Enter(ctx, arrival) }, // until the engine is closed
		func() bool {
			states, err := e.Queues(ctx)
			return err != nil || states[0].Waiting == f.Waiting
		})
	values[figures.WaiterHeap], values[figures.WaiterStack] = queuedHeap-heap, queuedStack-stack
	return nil
}

// crowd weighs goroutines that wait for something, once all of them do. They are done
// when they no longer wait.
func (f Footprint) crowd(done *sync.WaitGroup, wait func(), all func() bool) (heap, stack float64) {
	before := memoryStats()
	var begun sync.WaitGroup
	begun.Add(f.Waiting)
	for range f.Waiting {
		done.Go(func() {
			begun.Done()
			wait()
		})
	}
	begun.Wait()
	for waiting := false; !waiting; waiting = all() {
		time.Sleep(200 * time.Millisecond)
	}
	after, n := memoryStats(), float64(f.Waiting)
	return (float64(after.HeapAlloc) - float64(before.HeapAlloc)) / n, (float64(after.StackInuse) - float64(before.StackInuse)) / n
}

// memoryStats is what is in use after the garbage is gone.
func memoryStats() (m runtime.MemStats) {
	runtime.GC()
	runtime.GC() // what the first left in pools
	runtime.ReadMemStats(&m)
	return m
}

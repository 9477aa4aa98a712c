package library

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/proc"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// Footprint is what the library takes of the memory.
type Footprint struct {
	WaitingHeap  float64 // bytes on the heap for a waiter
	WaitingStack float64 // bytes of stack, over a goroutine that waits for a channel
	Allocations  float64 // for a turn
	Allocated    float64 // bytes for a turn
}

// Footprinting says how to find out.
type Footprinting struct {
	Work
	Waiting int
}

func init() {
	proc.Role("footprint", func(ctx context.Context, f Footprinting) (fp Footprint, err error) {
		if err := f.with(func(e serializer.Engine) error { return f.turning(ctx, e, &fp) }); err != nil {
			return fp, err
		}
		return fp, f.with(func(e serializer.Engine) error { return f.waiting(ctx, e, &fp) })
	})
}

// Run measures it in a process of its own.
func (f Footprinting) Run(ctx context.Context) (Footprint, error) {
	return proc.Ask[Footprint](ctx, "footprint", f, nil)
}

// turning counts the allocations of turns.
func (f Footprinting) turning(ctx context.Context, engine serializer.Engine, fp *Footprint) error {
	if err := (Work{Callers: 1, Turns: 100}).do(ctx, engine); err != nil { // to warm up
		return err
	}
	before := memory()
	err := f.do(ctx, engine)
	after := memory()
	n := float64(f.Callers * f.Turns)
	fp.Allocations = float64(after.Mallocs-before.Mallocs) / n
	fp.Allocated = float64(after.TotalAlloc-before.TotalAlloc) / n
	return err
}

// waiting compares waiters with goroutines that wait for a channel.
func (f Footprinting) waiting(ctx context.Context, engine serializer.Engine, fp *Footprint) error {
	over := make(chan struct{})
	asleep, err := f.crowd(func() { <-over }, func() { close(over) }, func() (bool, error) { return true, nil })
	if err != nil {
		return err
	}
	turn, err := engine.Enter(ctx, arrival)
	if err != nil {
		return err
	}
	defer turn.Leave()
	queued, err := f.crowd(
		func() { _, _ = engine.Enter(ctx, arrival) }, // until the engine is closed
		func() { _ = engine.Close() },
		func() (bool, error) {
			states, err := engine.Queues(ctx)
			return err == nil && states[0].Waiting == f.Waiting, err
		})
	fp.WaitingHeap = queued.heap - asleep.heap
	fp.WaitingStack = queued.stack - asleep.stack
	return err
}

// weight is what one of a crowd takes.
type weight struct{ heap, stack float64 }

// crowd weighs goroutines that wait for something, once all of them do.
func (f Footprinting) crowd(wait, end func(), all func() (bool, error)) (each weight, err error) {
	before := memory()
	var done sync.WaitGroup
	for range f.Waiting {
		done.Go(wait)
	}
	for waiting := false; !waiting && err == nil; waiting, err = all() {
		time.Sleep(200 * time.Millisecond)
	}
	after := memory()
	end()
	done.Wait()
	n := float64(f.Waiting)
	return weight{
		heap:  (float64(after.HeapAlloc) - float64(before.HeapAlloc)) / n,
		stack: (float64(after.StackInuse) - float64(before.StackInuse)) / n,
	}, err
}

// memory is what is in use after the garbage is gone.
func memory() (m runtime.MemStats) {
	runtime.GC()
	runtime.GC() // what the first left in pools
	runtime.ReadMemStats(&m)
	return m
}

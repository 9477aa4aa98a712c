package uniqueid

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// The errors of a generator without a run. Those of its store are others.
var (
	// ErrRunsExhausted means that all of the 2^30 runs have been issued.
	ErrRunsExhausted = errors.New("all 1073741824 runs of call numbers are used up")
	// ErrClosed means that [CallNumberGenerator.Close] was called, and its run is used up.
	ErrClosed = errors.New("the generator is closed")
)

// RunStore issues run numbers to all processes that share it.
//
// NextRun returns a number, 0 to [MaxRun], that is greater than all it has ever
// returned to anybody. It must store that number before it returns, so that no crash
// makes it forget. When no number is left, it returns [ErrRunsExhausted] or an error
// that wraps it. One goroutine of a generator calls it at a time.
type RunStore interface {
	NextRun(ctx context.Context) (uint32, error)
}

const (
	// prefetchAt is the sequence at which a generator asks for its next run. Half of the
	// run is then left, and a process that ends earlier wastes no further run.
	prefetchAt = RunLen / 2
	// prefetchEvery is how often it looks, from then on, whether it should ask again.
	prefetchEvery = 64
	// fetchTimeout is how long the store may take to provide a run.
	fetchTimeout = 30 * time.Second
)

// CallNumberGenerator makes CallNumbers of version 0. It is safe for concurrent
// use and never makes the same number twice.
//
// It takes a run from its store when it first needs one, then counts by itself, in order,
// to the end of the run. Halfway through, it asks for the next run in the background.
//
// If the store fails, the current run is used to its end. After that, every call asks it
// again, or waits with others for its answer. A store that has not answered for 30 seconds
// also counts as failed. It is not asked again before that call returns. One that repeats a
// run is never asked again.
type CallNumberGenerator struct {
	store  RunStore
	ctx    context.Context // for fetches in the background
	cancel context.CancelCauseFunc

	current atomic.Pointer[run]

	mu    sync.Mutex // guards what follows; methods whose names end in Locked require it
	fetch *fetch     // of the run after current, nil before the first
	last  int64      // the last run from the store, -1 before the first
}

// run is a run and how far it has been counted, which may be past its end.
type run struct {
	number uint64
	made   atomic.Uint64
}

// fetch is one call of the store, on behalf of any number of waiting goroutines.
type fetch struct {
	ctx context.Context // until the call has ended, or its deadline
	// The generator's mu guards what follows. run or err is set when the call has ended.
	run *run
	err error
}

// NewCallNumberGenerator makes a generator that takes its runs from store. It
// does not ask the store yet. It fails only without a store. Close the generator when it is
// no longer needed.
func NewCallNumberGenerator(store RunStore) (*CallNumberGenerator, error) {
	if store == nil {
		return nil, errors.New("making a call_number generator: the store is missing: pass a RunStore, such as a FileRunStore")
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	return &CallNumberGenerator{store: store, ctx: ctx, cancel: cancel, last: -1}, nil
}

// Close cancels a request to the store that is in progress. The generator still makes
// the numbers of its current run. Then [CallNumberGenerator.New] returns [ErrClosed].
func (g *CallNumberGenerator) Close() { g.cancel(ErrClosed) }

// New makes a CallNumber. It waits for the store only if it has no run, and no longer
// than the context allows. A run that arrives too late for this call serves the next.
// The error says why there is no run.
func (g *CallNumberGenerator) New(ctx context.Context) (CallNumber, error) {
	for {
		current := g.current.Load()
		if sequence, ok := current.take(); ok {
			if sequence >= prefetchAt && sequence%prefetchEvery == 0 {
				g.nextFetch(current)
			}
			return shuffle(current.number<<sequenceBits | sequence), nil
		}
		if err := g.advance(ctx, current); err != nil {
			return 0, fmt.Errorf("making a call number: %w", err)
		}
	}
}

// take takes a sequence number of a run. ok is false if the run is used up, or nil.
func (r *run) take() (sequence uint64, ok bool) {
	if r == nil {
		return 0, false
	}
	sequence = r.made.Add(1) - 1
	return sequence, sequence < RunLen
}

// advance replaces a run that is used up. A fetch that is overdue goes on, but nobody waits
// for it any longer.
func (g *CallNumberGenerator) advance(ctx context.Context, used *run) error {
	f := g.nextFetch(used)
	if f == nil {
		return nil
	}
	select {
	case <-f.ctx.Done():
	case <-ctx.Done():
		return fmt.Errorf("waiting for the next run: %w", context.Cause(ctx))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	err := f.err
	if err == nil && f.run == nil {
		err = context.Cause(f.ctx)
	}
	if err != nil {
		return fmt.Errorf("taking the next run: %w", err)
	}
	if g.fetch == f {
		g.current.Store(f.run)
		g.fetch = nil
	}
	return nil
}

// nextFetch returns the fetch of the run that follows used, or nil if another goroutine has
// already replaced used. It begins one if there is none, or if the last one has failed.
func (g *CallNumberGenerator) nextFetch(used *run) *fetch {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.current.Load() != used {
		return nil
	}
	if f := g.fetch; f != nil && f.err == nil {
		return f
	}
	ctx, cancel := context.WithTimeoutCause(g.ctx, fetchTimeout,
		fmt.Errorf("the store has not answered for %v: %w", fetchTimeout, context.DeadlineExceeded))
	g.fetch = &fetch{ctx: ctx}
	go g.ask(g.fetch, cancel)
	return g.fetch
}

// ask asks the store for a run. A store may ignore the context, as a file system does. One
// that fails when the context has ended fails for the context's reason.
func (g *CallNumberGenerator) ask(f *fetch, cancel context.CancelFunc) {
	defer cancel()
	number, err := uint32(0), context.Cause(f.ctx)
	if err == nil {
		number, err = g.store.NextRun(f.ctx)
	}
	if cause := context.Cause(f.ctx); err != nil && cause != nil {
		err = cause
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	f.run, f.err = g.acceptLocked(number, err)
}

// acceptLocked returns a run to use. A store may go back, for example because it was
// restored from a copy. It then does not know that it has issued later runs, also to others,
// and is not asked again.
func (g *CallNumberGenerator) acceptLocked(number uint32, err error) (*run, error) {
	switch {
	case err != nil:
		return nil, err
	case number > MaxRun:
		return nil, fmt.Errorf("the store gave %d: %w", number, ErrRunsExhausted)
	case int64(number) <= g.last:
		g.cancel(fmt.Errorf("the store gave %d after %d and would repeat numbers", number, g.last))
		return nil, context.Cause(g.ctx)
	}
	g.last = int64(number)
	return &run{number: uint64(number)}, nil
}

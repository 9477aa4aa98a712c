package uniqueid

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// ErrRunsExhausted means that all of the 2^30 runs have been issued.
var ErrRunsExhausted = errors.New("all 1073741824 runs of call numbers are used up")

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
	// fetchTimeout is how long the store may take to provide a run.
	fetchTimeout = 30 * time.Second
	// retryAfter is how long a generator waits before it asks a store that has failed
	// again.
	retryAfter = time.Second
)

// CallNumberGenerator makes CallNumbers of version 0. It is safe for concurrent
// use and never makes the same number twice.
//
// It takes a run from its store when it first needs one, then counts by itself. All
// cores share one counter, so numbers come in order, and a run is used up to its end.
// Halfway through a run, it asks for the next one in the background.
//
// If the store fails, the current run is used to its end. After that, every call
// returns an error until the store provides a run again. The store is asked again after
// a second; calls in between fail at once. A store that has not answered for 30 seconds
// also counts as failed. It is not asked again before that call returns.
type CallNumberGenerator struct {
	store  RunStore
	clock  Clock
	ctx    context.Context // for fetches in the background
	cancel context.CancelFunc

	current atomic.Pointer[run]
	// askAgain is when the store may be asked in the background, as a monotonic time in
	// nanoseconds. It is never while a run is ready or being fetched.
	askAgain atomic.Int64

	mu      sync.Mutex // methods whose names end in Locked require it
	next    *run       // fetched in advance
	fetch   *fetch     // in progress
	failure error      // of the last fetch or of an overdue one, until the next begins
	last    int64      // the last run from the store, -1 before the first
}

// never is a time that askAgain does not reach.
const never = math.MaxInt64

// run is a run and how far it has been counted, which may be past its end.
type run struct {
	base CallNumber // the number of sequence 0
	made atomic.Uint64
}

// fetch is one call of the store, on behalf of any number of waiting goroutines.
type fetch struct {
	done chan struct{}
	err  error // set before done is closed
	// overdue says that done was closed although the call has not returned. No other call
	// is made until then, because a store that hangs would hang again.
	overdue bool
}

// NewCallNumberGenerator makes a generator that takes its runs from store. It
// does not ask the store yet. Of the options, only [WithClock] matters.
func NewCallNumberGenerator(store RunStore, options ...Option) *CallNumberGenerator {
	ctx, cancel := context.WithCancel(context.Background())
	return &CallNumberGenerator{
		store:  store,
		clock:  newSettings(options).clock,
		ctx:    ctx,
		cancel: cancel,
		last:   -1,
	}
}

// Close cancels a request to the store that is in progress. The generator still makes
// the numbers of its current run, and then no more.
func (g *CallNumberGenerator) Close() { g.cancel() }

// New makes a CallNumber. It waits for the store only if it has no run, and no longer
// than the context allows. A run that arrives too late for this call serves the next.
// The error says why there is no run.
func (g *CallNumberGenerator) New(ctx context.Context) (CallNumber, error) {
	for {
		current := g.current.Load()
		if sequence, ok := g.take(current); ok {
			if sequence >= prefetchAt {
				g.prefetch()
			}
			return current.base | shuffleSequence(sequence), nil
		}
		if err := g.advance(ctx, current); err != nil {
			return 0, fmt.Errorf("making a call number: %w", err)
		}
	}
}

// AppendNew makes a CallNumber as New does, and appends its 8 characters to dst.
func (g *CallNumberGenerator) AppendNew(ctx context.Context, dst []byte) ([]byte, error) {
	number, err := g.New(ctx)
	if err != nil {
		return dst, err
	}
	return number.AppendText(dst)
}

// take takes a sequence number of a run. ok is false if the run is used up.
func (*CallNumberGenerator) take(r *run) (sequence uint64, ok bool) {
	if r == nil {
		return 0, false
	}
	sequence = r.made.Add(1) - 1
	return sequence, sequence < RunLen
}

// prefetch asks the store in the background, if necessary.
func (g *CallNumberGenerator) prefetch() {
	askAgain := g.askAgain.Load()
	if askAgain == never || int64(g.clock.Monotonic()) < askAgain {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.next == nil && g.fetch == nil {
		g.beginFetchLocked()
	}
}

// advance replaces a run that is used up.
func (g *CallNumberGenerator) advance(ctx context.Context, used *run) error {
	underWay, err := g.swap(used)
	if err != nil || underWay == nil {
		return err
	}
	select {
	case <-underWay.done:
		return underWay.err
	case <-ctx.Done():
		return fmt.Errorf("waiting for the next run: %w", context.Cause(ctx))
	}
}

// swap makes the run that was fetched in advance the current one. If there is none, it
// returns the fetch to wait for.
func (g *CallNumberGenerator) swap(used *run) (*fetch, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.current.Load() != used {
		return nil, nil
	}
	if g.next != nil {
		g.current.Store(g.next)
		g.next = nil
		g.askAgain.Store(0)
		return nil, nil
	}
	if g.fetch != nil && g.fetch.overdue {
		return nil, g.failure
	}
	if g.fetch != nil {
		return g.fetch, nil
	}
	if g.failure != nil && int64(g.clock.Monotonic()) < g.askAgain.Load() {
		return nil, g.failure
	}
	return g.beginFetchLocked(), nil
}

// beginFetchLocked asks the store in a new goroutine.
func (g *CallNumberGenerator) beginFetchLocked() *fetch {
	f := &fetch{done: make(chan struct{})}
	g.fetch = f
	g.failure = nil
	g.askAgain.Store(never)
	go g.ask(f)
	return f
}

// ask asks the store for a run. A store may ignore its deadline, as a file system does.
// Then nobody waits for it any longer.
func (g *CallNumberGenerator) ask(f *fetch) {
	ctx, cancel := context.WithTimeout(g.ctx, fetchTimeout)
	defer cancel()
	if err := ctx.Err(); err != nil {
		g.endFetch(f, 0, fmt.Errorf("the generator is closed: %w", err))
		return
	}
	stop := context.AfterFunc(ctx, func() { g.giveUp(f, ctx.Err()) })
	defer stop()
	number, err := g.store.NextRun(ctx)
	g.endFetch(f, number, err)
}

// giveUp releases all goroutines that wait for a fetch. The fetch continues.
func (g *CallNumberGenerator) giveUp(f *fetch, reason error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fetch != f {
		return // it has just ended
	}
	if errors.Is(reason, context.DeadlineExceeded) {
		reason = fmt.Errorf("the store has not answered for %v: %w", fetchTimeout, reason)
	}
	f.err = fmt.Errorf("taking the next run: %w", reason)
	f.overdue = true
	g.failure = f.err
	close(f.done)
}

func (g *CallNumberGenerator) endFetch(f *fetch, number uint32, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fetch = nil
	if err := g.acceptLocked(number, err); err != nil {
		g.failure = err
		g.askAgain.Store(int64(g.clock.Monotonic() + retryAfter))
	}
	if !f.overdue {
		f.err = g.failure
		close(f.done)
	}
}

// acceptLocked keeps a run for use. A store may go back, for example because it was restored
// from a copy. It then does not know that it has issued later runs.
func (g *CallNumberGenerator) acceptLocked(number uint32, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("taking the next run: %w", err)
	case number > MaxRun:
		return fmt.Errorf("taking the next run: the store gave %d: %w", number, ErrRunsExhausted)
	case int64(number) <= g.last:
		return fmt.Errorf("taking the next run: the store gave %d after %d and would repeat numbers", number, g.last)
	}
	g.last = int64(number)
	g.next = &run{base: shuffle(uint64(number) << sequenceBits)}
	return nil
}

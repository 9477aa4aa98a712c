//go:build linux

package serializer

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// These tests keep the engines cheap. They count what does not depend on the
// machine, and compare times only with others of the same moment; the figures
// themselves are measured by the command in the folder bench. The bounds are those
// of a system that tells what changed in a directory.

// countedDir counts what a turn asks of the directory. What the monitor asks by
// the clock is not a turn's and not counted.
type countedDir struct {
	lockDir
	calls *dirCalls
}

type dirCalls struct {
	guard, changes, last, setLast, create, remove atomic.Int64

	busy sync.Mutex // held, it keeps everyone from the guard
}

func (d countedDir) lock() error {
	d.calls.guard.Add(1)
	d.calls.busy.Lock()
	defer d.calls.busy.Unlock()
	return d.lockDir.lock()
}

func (d countedDir) changes(fn func(change, []byte)) error {
	d.calls.changes.Add(1)
	return d.lockDir.changes(fn)
}

func (d countedDir) last() (uint64, error) { d.calls.last.Add(1); return d.lockDir.last() }
func (d countedDir) setLast(last uint64) error {
	d.calls.setLast.Add(1)
	return d.lockDir.setLast(last)
}

func (d countedDir) create(name string, stamp uint64, k ownerKind) error {
	d.calls.create.Add(1)
	return d.lockDir.create(name, stamp, k)
}

func (d countedDir) leave(name string, stamp uint64) error {
	d.calls.remove.Add(1)
	return d.lockDir.leave(name, stamp)
}

func (d countedDir) remove(name string) error { d.calls.remove.Add(1); return d.lockDir.remove(name) }

// sum counts a use of the guard as three calls: lock, check and unlock.
func (c *dirCalls) sum() int64 {
	return 3*c.guard.Load() + c.changes.Load() + c.last.Load() + c.setLast.Load() + c.create.Load() + c.remove.Load()
}

func openCounted(t *testing.T) (*File, *dirCalls) {
	calls := new(dirCalls)
	e := openFile(t, t.TempDir())
	e.open = func(path string, clock func() time.Time) (lockDir, error) {
		d, err := openLockDir(path, clock)
		return countedDir{d, calls}, err
	}
	t.Cleanup(func() { _ = e.Close() })
	return e, calls
}

// turns is n turns of one caller.
func turns(t testing.TB, e Engine, n int) {
	a := arrival("a_")
	a.Rule, a.Timeout = Rule{Limit: 1}, time.Minute
	for range n {
		turn, err := e.Enter(context.Background(), a)
		if err != nil {
			t.Error(err)
			return
		}
		turn.Leave()
	}
}

// crowdedTurns is n turns of many callers.
func crowdedTurns(t testing.TB, e Engine, callers, n int) {
	var done sync.WaitGroup
	for range callers {
		done.Go(func() { turns(t, e, n/callers) })
	}
	done.Wait()
}

// A turn asks seven things of the directory; with many callers, some of them
// share the guard.
func TestDirectoryCallsOfATurn(t *testing.T) {
	const n = 2048
	for _, c := range []struct{ callers, most int }{{1, 8}, {32, 8}} {
		e, calls := openCounted(t)
		turns(t, e, 10) // opens the directory
		before := calls.sum()
		crowdedTurns(t, e, c.callers, n)
		if each := float64(calls.sum()-before) / n; each > float64(c.most) {
			t.Errorf("with %d callers, a turn makes %.2f calls, more than %d", c.callers, each, c.most)
		}
		if made, removed := calls.create.Load(), calls.remove.Load(); made != removed {
			t.Errorf("%d lock files were made, %d removed", made, removed)
		}
	}
}

// Callers that arrive while the guard is busy get their tickets in one batch.
func TestArrivalsShareTheGuard(t *testing.T) {
	e, calls := openCounted(t)
	turns(t, e, 1)
	calls.busy.Lock()
	before := calls.guard.Load()
	var done sync.WaitGroup
	arrive := func() { done.Go(func() { turns(t, e, 1) }) }
	arrive()
	waitUntil(t, "the first asks for the guard", func() bool { return calls.guard.Load() > before })
	for range batchSize {
		arrive()
	}
	waitUntil(t, "the others have arrived", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(e.arrivals) == batchSize
	})
	calls.busy.Unlock()
	done.Wait()
	if n := calls.guard.Load() - before; n != 2 {
		t.Errorf("one arrival and %d more took the guard %d times, not twice", batchSize, n)
	}
}

// The bounds are just above the current values, so that a new allocation is noticed.
func TestAllocationsOfATurn(t *testing.T) {
	if raceDetector {
		return // it allocates, too
	}
	file, _ := openCounted(t)
	for _, c := range []struct {
		name   string
		engine Engine
		most   float64
	}{
		{"memory", NewMemory(MemoryOptions{}), 3},
		{"file", file, 6},
	} {
		turns(t, c.engine, 10)
		if n := testing.AllocsPerRun(2000, func() { turns(t, c.engine, 1) }); n > c.most {
			t.Errorf("%s: a turn allocates %.1f times, more than %.0f", c.name, n, c.most)
		}
	}
}

// A waiter takes at most 2 KiB of the heap.
func TestMemoryOfOneWhoWaits(t *testing.T) {
	const crowd, most = 2000, 2 << 10
	file, _ := openCounted(t)
	for _, e := range []Engine{NewMemory(MemoryOptions{}), file} {
		turns(t, e, 10)
		turn := enter(t, e, arrival("a_"))
		before := heap()
		var done sync.WaitGroup
		gone, leave := context.WithCancel(t.Context())
		for range crowd {
			done.Go(func() { _, _ = e.Enter(gone, arrivalFor(time.Minute)) })
		}
		awaitQueue(t, e, crowd+1)
		each := (heap() - before) / crowd
		leave()
		done.Wait()
		turn.Leave()
		if each > most {
			t.Errorf("%T: someone who waits takes %d bytes, more than %d", e, each, most)
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

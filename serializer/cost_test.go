package serializer

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// These tests keep the engines cheap. They count what does not depend on the
// machine, and compare times only with others of the same run. The command in
// the folder bench measures the figures themselves.

// countedDir counts the calls that turns make to the directory. The monitor's
// periodic calls belong to no turn, and are not counted.
type countedDir struct {
	lockDir
	calls *dirCalls
}

type dirCalls struct {
	guard, changes, last, setLast, create, remove atomic.Int64

	busy sync.Mutex // while it is held, nobody gets the guard
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

// turns takes n turns as one caller.
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

// Callers that arrive while the guard is busy get their tickets in one batch.
func TestArrivalsShareTheGuard(t *testing.T) {
	e, calls := openCounted(t)
	turns(t, e, 1)
	calls.busy.Lock()
	before := calls.guard.Load()
	var done sync.WaitGroup
	arrive := func() { done.Go(func() { turns(t, e, 1) }) }
	arrive()
	wait.Until(t, "the first asks for the guard", func() bool { return calls.guard.Load() > before })
	for range batchSize {
		arrive()
	}
	wait.Until(t, "the others have arrived", func() bool {
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

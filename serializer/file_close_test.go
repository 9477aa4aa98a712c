package serializer

import (
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// Bug: Close did not wait for the file of a finished ticket that another goroutine was
// about to remove. A process that ended then left it behind.
func TestCloseWaitsForRemovals(t *testing.T) {
	dir := t.TempDir()
	e := openFile(t, dir)
	turn := enter(t, e, arrival("a_"))
	next := join(t, e, arrival("a_"))
	wait.Until(t, "the next ticket has its file", func() bool { e.mu.Lock(); defer e.mu.Unlock(); return !e.issuing })
	e.dir.removals.changing.Lock()
	turn.Leave()
	(<-next).turn.Leave()
	left := make(chan []string)
	go func() {
		_ = e.Close()
		left <- filesOf(t, dir)
	}()
	select {
	case files := <-left:
		t.Fatalf("closed, and left in the lock directory: %v", files)
	case <-time.After(50 * time.Millisecond): // Close waits for the removal below
	}
	e.dir.removals.changing.Unlock()
	e.dir.removeLeft()
	if files := <-left; len(files) != 1 {
		t.Errorf("left in the lock directory: %v", files)
	}
}

// unheard is a directory of whose changes its monitor never learns: other syncs always
// come first.
type unheard struct {
	lockDir
	waiting chan struct{} // the monitor waits
	awake   chan struct{}
}

func (u *unheard) wait(time.Duration) {
	select {
	case u.waiting <- struct{}{}:
	default:
	}
	select {
	case <-u.awake:
	case <-time.After(20 * time.Second):
	}
}

func (u *unheard) interrupt() {
	select {
	case u.awake <- struct{}{}:
	default:
	}
}

// Bug: Close waited for the next tick if the monitor was waiting for another process, and
// another sync had noticed that the last ticket was gone.
func TestCloseWakesTheMonitor(t *testing.T) {
	dir := t.TempDir()
	e, u := openAt(t, dir, 0), &unheard{waiting: make(chan struct{}, 1), awake: make(chan struct{}, 1)}
	e.open = func(path string, clock func() time.Time) (_ lockDir, err error) {
		u.lockDir, err = openLockDir(path, clock)
		return u, err
	}
	defer enter(t, openAt(t, dir, 0), arrival("a_")).Leave()
	waiting := started(e, arrival("a_"))
	<-u.waiting
	closed := make(chan error)
	go func() { closed <- e.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Close does not return")
	}
	wantRefusal(t, (<-waiting).err, ReasonStorage, ErrClosed)
}

// Bug: an arrival that was about to get its ticket when the engine was closed got it, and
// waited or entered after Close had returned.
func TestCloseRefusesWhoIsAboutToJoin(t *testing.T) {
	dir := t.TempDir()
	e := openAt(t, dir, 0)
	enter(t, e, arrival("b_")).Leave()
	e.dir.syncing.Lock() // the issuing goroutine has the arrival, and cannot go on
	arriving := started(e, arrival("a_"))
	wait.Until(t, "the arrival is taken up", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.issuing && len(e.arrivals) == 0
	})
	d := e.dir
	closed := make(chan error)
	go func() { closed <- e.Close() }()
	wait.Until(t, "the engine is closed", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.closing
	})
	d.syncing.Unlock()
	r := <-arriving
	wantRefusal(t, r.err, ReasonStorage, ErrClosed)
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

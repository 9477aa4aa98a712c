package serializer

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A lone caller takes its ticket itself: no other goroutine waits for the guard.
func TestLoneCallerTakesItsTicketItself(t *testing.T) {
	e, calls := openCounted(t)
	turns(t, e, 10) // opens the directory
	waits, guard := calls.waits.Load(), calls.guard.Load()
	const n = 100
	turns(t, e, n)
	if waits := calls.waits.Load() - waits; waits > 0 {
		t.Errorf("in %d turns, another goroutine took the guard %d times", n, waits)
	}
	if guard := calls.guard.Load() - guard; guard != n {
		t.Errorf("in %d turns, the guard was taken %d times", n, guard)
	}
}

// A process that is stopped while it holds the guard keeps nobody from a timeout, a lone
// caller neither, which takes its ticket itself else.
func TestLoneCallerDoesNotWaitForTheGuard(t *testing.T) {
	dir := t.TempDir()
	e, other := openAt(t, dir, 0), openAt(t, dir, 0)
	turns(t, e, 2)
	turns(t, other, 2)
	if err := other.dir.sys.lock(); err != nil {
		t.Fatal(err)
	}
	a := arrivalFor(20 * time.Millisecond)
	_, err := e.Enter(t.Context(), a)
	wantRefusal(t, err, ReasonTimeout, ErrTimeout)
	joined := make(chan error, 1)
	Join(e, a, func(_ Turn, err error) { joined <- err })
	wantRefusal(t, <-joined, ReasonTimeout, ErrTimeout)
	other.dir.sys.unlock()
	turns(t, e, 1)
}

// The disk is waited for by a goroutine: a request must end by its own timeout.
func TestLoneCallerDoesNotWaitForTheDisk(t *testing.T) {
	e, calls := openCounted(t)
	turns(t, e, 2)
	if e.dir.reserved.Load() == maxStamp {
		t.Log("this system does not tell of a start of the machine; nothing is reserved")
		return
	}
	flushing, flush := make(chan struct{}), make(chan struct{})
	files := e.dir.sys.(countedDir).lockDir.(*osDir)
	files.disk.flush = func(fd int) error {
		close(flushing)
		<-flush
		return unix.Fdatasync(fd)
	}
	e.dir.reserved.Store(0)
	if err := files.setBound(0); err != nil {
		t.Fatal(err)
	}
	if err := files.writeGuard(appendDigits(nil, 0, stampDigits), confirmedAt); err != nil {
		t.Fatal(err)
	}
	waits := calls.waits.Load()
	_, err := e.Enter(t.Context(), arrivalFor(20*time.Millisecond))
	wantRefusal(t, err, ReasonTimeout, ErrTimeout)
	<-flushing
	files.disk.flush = syncData
	close(flush)
	turns(t, e, 1)
	if calls.waits.Load() == waits {
		t.Error("no goroutine took the guard")
	}
}

// An arrival that is refused before it has joined does not hear that it has.
func TestLoneCallerThatIsRefusedHasNotJoined(t *testing.T) {
	dir := t.TempDir()
	e, other := openAt(t, dir, 0), openAt(t, dir, 0)
	turns(t, e, 2)
	inside := enter(t, other, arrival("a_"))
	defer inside.Leave()
	waiting := started(other, arrival("a_"))
	awaitQueue(t, other, 2)
	a := arrivalFor(time.Minute)
	a.MaxWaiting = 1
	a.Joined = func() { t.Error("it has joined") }
	_, err := e.Enter(t.Context(), a)
	wantRefusal(t, err, ReasonFull, ErrFull)
	inside.Leave()
	(<-waiting).turn.Leave()
}

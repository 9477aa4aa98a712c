package serializer

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// faultyDisk is a disk that fails as on Linux: it reports a failure once, and from then
// on takes what it could not write for written.
type faultyDisk struct {
	*osDir

	mu       sync.Mutex
	failures map[string]int // to come, of writing the guard file or the directory's entries
	lost     bool           // the bound was not written, and nobody has written it anew since
	written  map[string]int // how often the guard file and the directory were written
}

func (f *faultyDisk) setBound(bound uint64) error {
	err := f.osDir.setBound(bound)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lost = err != nil
	return err
}

func (f *faultyDisk) flushFile(fd int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	file := "guard"
	if fd == f.dir {
		file = "directory"
	}
	if f.failures[file] > 0 {
		f.failures[file]--
		f.lost = f.lost || file == "guard"
		return unix.EIO
	}
	f.written[file]++
	return nil
}

// onDisk reports whether everything is on the disk that must be.
func (f *faultyDisk) onDisk() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.lost && f.written["guard"] > 0 && f.written["directory"] > 0
}

func openFaulty(t testing.TB, dir string) *faultyDisk {
	t.Helper()
	f := &faultyDisk{osDir: openOS(t, dir), failures: make(map[string]int), written: make(map[string]int)}
	f.disk.flush = f.flushFile
	return f
}

// Bug: after the disk had failed to write the reserved numbers, the next write without an
// error counted as theirs, although Linux had dropped them. A failed write of the guard's
// directory entry was never repeated either.
func TestFailedDiskIsWrittenAgain(t *testing.T) {
	for _, file := range []string{"guard", "directory"} {
		t.Run(file, func(t *testing.T) {
			dir := t.TempDir()
			e := openAt(t, dir, 0)
			f := openFaulty(t, dir)
			f.failures[file] = 3
			e.open = func(string, func() time.Time) (lockDir, error) { return f, nil }
			for range 3 {
				_, err := e.Enter(context.Background(), arrival("a_"))
				wantRefusal(t, err, ReasonStorage, unix.EIO)
			}
			enter(t, e, arrival("a_")).Leave()
			if !f.onDisk() {
				t.Error("a request entered, and what reserves its number is not on the disk")
			}
		})
	}
}

// The same applies to a bound that another part of the engine failed to write.
func TestBoundThatFailedIsNotConfirmed(t *testing.T) {
	f := openFaulty(t, t.TempDir())
	f.failures["guard"] = 1
	if err := f.setBound(minStamp); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if f.confirm(minStamp) == nil {
			t.Fatal("a bound that was not written is confirmed")
		}
	}
	if err := f.setBound(minStamp); err != nil {
		t.Fatal(err)
	}
	if err := f.confirm(minStamp); err != nil {
		t.Error(err)
	}
}

// Bug: nobody learned of a disk that failed while numbers were reserved in advance.
func TestFailureAheadOfTimeIsLogged(t *testing.T) {
	dir := t.TempDir()
	log := new(logBuffer)
	now := time.Now()
	e := openAt(t, dir, 0)
	e.clock, e.log = func() time.Time { return now }, slog.New(slog.NewTextHandler(log, nil))
	f := openFaulty(t, dir)
	e.open = func(string, func() time.Time) (lockDir, error) { return f, nil }
	enter(t, e, arrival("a_")).Leave()
	f.mu.Lock()
	f.failures["guard"] = 1
	f.mu.Unlock()
	now = now.Add(reserveTime * 3 / 4)
	enter(t, e, arrival("a_")).Leave()
	wait.Until(t, "the error is logged", func() bool { return strings.Contains(log.String(), unix.EIO.Error()) })
	enter(t, e, arrival("a_")).Leave()
	wait.Until(t, "the numbers are reserved", func() bool {
		enter(t, e, arrival("a_")).Leave()
		return e.dir.numbers.confirmed.Load() > uint64(now.Add(reserveTime/4).UnixMicro())
	})
	if !f.onDisk() {
		t.Error("what reserves the numbers is not on the disk")
	}
}

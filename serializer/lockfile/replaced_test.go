//go:build unix && !aix && !solaris

package lockfile

import (
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/name"
)

// movedAway renames a directory. It returns the new name.
func movedAway(t testing.TB, dir string) (old string) {
	t.Helper()
	old = dir + ".old"
	must(t, os.Rename(dir, old))
	return old
}

// Bug: who did not know a ticket, because its file was removed while its process was stopped,
// went on in a directory that replaced the first, beside the ticket's holder.
func TestDirectoryReplacedBeforeFileIsPutBack(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "locks")
	holder := open(t, dir)
	turn := enter(t, holder, "a_")
	hear := holder.deaf()
	must(t, os.Remove(filepath.Join(dir, filesWith(t, dir, "a_")[0])))
	next := started(open(t, dir), "a_")
	stillWaits(t, next, "the holder's ticket is out")
	movedAway(t, dir)
	must(t, os.Mkdir(dir, 0o700))
	stillWaits(t, next, "the holder is inside")
	hear()
	turn.Leave()
	next.Wait(t).Leave()
}

// Bug: a pause was acknowledged that lay in a directory which had been moved away.
func TestPauseInMovedDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "locks")
	e := open(t, dir)
	old := movedAway(t, dir)
	if err := e.Pause(t.Context(), "a_", time.Now().Add(time.Hour)); err == nil || !strings.Contains(err.Error(), "was replaced") {
		t.Errorf("the pause ended with %v", err)
	}
	must(t, os.Rename(old, dir))
	// Bug: in a directory that was replaced, it could not be resumed.
	wait.Eventually(t, "it is back", func() error { return e.Pause(t.Context(), "b_", time.Now().Add(time.Hour)) })
	waiter := joined(t, e, "b_")
	movedAway(t, dir)
	must(t, os.Mkdir(dir, 0o700))
	must(t, e.Resume(t.Context(), "b_"))
	waiter.Wait(t).Leave()
	wait.Eventually(t, "it is used", func() error { return e.Pause(t.Context(), "a_", time.Now().Add(time.Hour)) })
}

// leadTo makes a path lead to a directory beside it.
func leadTo(t testing.TB, path, to string) {
	t.Helper()
	must(t, errors.Join(os.MkdirAll(filepath.Join(filepath.Dir(path), to), 0o700), os.Symlink(to, path+".new"), os.Rename(path+".new", path)))
}

// A process that has missed something finds the holder in the old directory all the same, and
// waits. Numbers go on above the holder's.
//
// Bug: an owner that came into the directory after the last look at it was not waited for. Bug: a
// directory could return and be replaced again while an engine did not look. The engine then
// knew neither the turns that were out there nor their numbers. Bug: an idle process missed the
// second of three directories.
func TestHolderInReplacedDirectory(t *testing.T) {
	t.Parallel()
	for what, replace := range map[string]func(t testing.TB, path string, slow node) (holder serializer.Turn){
		"a new owner": func(t testing.TB, path string, slow node) serializer.Turn {
			defer slow.deaf()()
			holder := enter(t, open(t, path), "a_")
			leadTo(t, path, "second")
			return holder
		},
		"put back, and replaced again": func(t testing.TB, path string, slow node) serializer.Turn {
			other := openAt(t, path, 24*time.Hour)
			defer slow.deaf()()
			leadTo(t, path, "second")
			leadTo(t, path, "first")
			defer leadTo(t, path, "second")
			return enter(t, other, "a_")
		},
		"replaced twice": func(t testing.TB, path string, slow node) serializer.Turn {
			leadTo(t, path, "second")
			holder := enter(t, open(t, path), "a_")
			wait.Until(t, "the idle process knows the second directory", func() bool { return slow.dir().sys.Here() })
			leadTo(t, path, "third")
			return holder
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "locks")
			leadTo(t, path, "first")
			slow := open(t, path)
			enter(t, slow, "a_").Leave()
			holder := replace(t, path, slow)
			next := started(slow, "a_")
			stillWaits(t, next, "the old directory's holder is still inside")
			holder.Leave()
			turn := next.Wait(t)
			defer turn.Leave()
			if turn.Token() <= holder.Token() {
				t.Errorf("token %d after %d", turn.Token(), holder.Token())
			}
		})
	}
}

// A directory returns and is replaced again while an engine that has found it empty opens the
// other one. So the engine must look again, because it does not have the guard.
func TestDirectoryPutBackWhileLeft(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "locks")
	leadTo(t, path, "first")
	var left atomic.Bool
	holders := make(chan serializer.Turn, 1)
	slow := openWith(t, path, func() time.Time {
		if strings.Contains(string(debug.Stack()), ".leave(") && left.CompareAndSwap(false, true) {
			leadTo(t, path, "first")
			holders <- enter(t, open(t, path), "a_")
			leadTo(t, path, "second")
		}
		return time.Now()
	})
	leadTo(t, path, "second")
	next := started(slow, "a_")
	holder := <-holders
	stillWaits(t, next, "the first directory's holder is inside")
	holder.Leave()
	next.Wait(t).Leave()
}

// When the guard is gone or damaged, numbers go on above those of all tickets, and nobody loses
// a place. Bug: numbering went back to the clock, which may be behind.
func TestGuardLost(t *testing.T) {
	t.Parallel()
	for what, lose := range map[string]func(guard string) error{
		"removed":   os.Remove,
		"truncated": func(guard string) error { return os.Truncate(guard, 0) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			guard := filepath.Join(dir, name.Guard)
			ahead, behind := openAt(t, dir, 24*time.Hour), openAt(t, dir, -time.Hour)
			first := enter(t, ahead, "a_")
			next := joined(t, behind, "a_")
			must(t, lose(guard))
			last := started(openAt(t, dir, -2*time.Hour), "a_")
			stillWaits(t, next, "the first is inside")
			token := first.Token()
			first.Leave()
			for _, w := range []*testlease.Caller{next, last} {
				turn := w.Wait(t)
				if turn.Token() <= token {
					t.Errorf("token %d after %d", turn.Token(), token)
				}
				token = turn.Token()
				turn.Leave()
			}
		})
	}
}

// A clock beyond the year 2286 cannot be written as a number: arrivals are refused until
// it is right again.
func TestClockBeyondNumbers(t *testing.T) {
	t.Parallel()
	var wrong atomic.Bool
	e := openWith(t, t.TempDir(), func() time.Time {
		if wrong.Load() {
			return time.Date(2287, 1, 1, 0, 0, 0, 0, time.UTC)
		}
		return time.Now()
	})
	enter(t, e, "a_").Leave()
	wrong.Store(true)
	if err := started(e, "a_").End(t); !errors.Is(err, serializer.ErrStorage) || !strings.Contains(err.Error(), "2286") {
		t.Errorf("got %v", err)
	}
	wrong.Store(false)
	enter(t, e, "a_").Leave()
}

// Bug: a process that had gone on to the next directory was said to have ended, if its lock
// file was removed with the directory before it left.
func TestRemovedDirectoryLeft(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "locks")
	one, two := open(t, dir), open(t, dir)
	turn := enter(t, one, "a_")
	_ = length(t, two, "a_") // which looks at the directory
	wait.Until(t, "the directory is removed, although files are put back", func() bool { return os.RemoveAll(dir) == nil })
	if n := length(t, two, "a_"); n != 1 {
		t.Fatalf("the other process knows %d tickets", n)
	}
	turn.Leave()
	enter(t, one, "a_").Leave()
	wait.Until(t, "the other process has gone on, too", func() bool { return two.dir().sys.Here() })
	if two.log.has("a process ended") {
		t.Error("a process that lives is said to have ended")
	}
}

// nested is the arrival of a caller that has a turn already.
func nested(queue string, held serializer.Turn) serializer.Arrival {
	a := arrival(queue)
	a.Holds = []serializer.Turn{held}
	return a
}

// Bug: a caller that was inside one queue of a directory that was replaced, and came to another
// one, waited for itself, and everybody for it. Whatever happens to the directory, it gets its
// turn in the old one, or is refused at once. Nobody enters in the new one before.
func TestNestedInReplacedDirectory(t *testing.T) {
	t.Parallel()
	moveAway := func(dir string) error { return os.Rename(dir, dir+".old") }
	makeAgain := func(dir string) error { return os.Mkdir(dir, 0o700) }
	putBack := func(dir string) error { return os.Rename(dir+".old", dir) }
	for _, test := range []struct {
		name    string
		happens []func(dir string) error
		refused bool   // no file can be made there any more
		others  string // the queue of newcomers; they do not wait for a directory that stays
	}{
		{"replaced", []func(string) error{moveAway, makeAgain}, false, "inner_"},
		{"moved away", []func(string) error{moveAway}, false, "inner_"},
		{"emptied and replaced", []func(string) error{removeFiles, moveAway, makeAgain}, false, "inner_"},
		{"removed", []func(string) error{os.RemoveAll}, true, "inner_"},
		{"removed and made again", []func(string) error{os.RemoveAll, makeAgain}, true, "inner_"},
		{"emptied", []func(string) error{removeFiles}, false, "newcomers_"},
		{"moved away and back", []func(string) error{moveAway, putBack}, false, "newcomers_"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "locks")
			one, two := open(t, dir), open(t, dir)
			outer, theirs := enter(t, one, "outer_"), enter(t, two, "theirs_")
			before := joined(t, one, "outer_")
			for _, happen := range test.happens { // again, if a file was put back meanwhile
				wait.Eventually(t, "it happens to the directory", func() error { return happen(dir) })
			}
			const newcomers = 200 // more than are appended at once
			served := make(chan serializer.Turn, newcomers)
			for i := range newcomers {
				go func() {
					if turn, err := []node{one, two}[i%2].Enter(t.Context(), arrival(test.others)); err == nil {
						turn.Leave()
						served <- turn
					}
				}()
			}
			if test.refused {
				wantRefusal(t, startedFor(one, nested("inner_", outer)), errRemoved)
				wantRefusal(t, startedFor(two, nested("inner_", theirs)), errRemoved)
			} else {
				inner := startedFor(one, nested("inner_", outer)).Wait(t)
				next := startedFor(two, nested("inner_", theirs))
				stillWaits(t, next, "another process's caller is inside")
				if test.others == "inner_" && len(served) > 0 {
					t.Errorf("%d have entered beside it", len(served))
				}
				startedFor(one, nested("innermost_", inner)).Wait(t).Leave()
				inner.Leave()
				next.Wait(t).Leave()
			}
			outer.Leave()
			theirs.Leave()
			before.Wait(t).Leave()
			wait.Until(t, "all newcomers are served", func() bool { return len(served) == newcomers })
		})
	}
}

func removeFiles(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	for _, file := range files {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}

// An arrival that cannot have its ticket now ends as any other does: by its timeout, and when
// the engine closes. A turn that has ended gives no ticket in the old directory.
func TestPostponedArrivals(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "locks")
	one, two := open(t, dir), open(t, dir)
	holder := enter(t, one, "a_")
	left := enter(t, two, "b_")
	left.Leave()
	movedAway(t, dir)
	impatient := arrival("c_")
	impatient.Timeout = 3 * tickInterval
	late, waiting, again := startedFor(two, impatient), started(two, "c_"), startedFor(two, nested("c_", left))
	stillWaits(t, waiting, "somebody is inside in the old directory")
	stillWaits(t, again, "it is inside nothing by now")
	if err := late.End(t); !errors.Is(err, serializer.ErrTimeout) {
		t.Errorf("got error %v", err)
	}
	must(t, two.Close())
	wantRefusal(t, waiting, serializer.ErrClosed)
	wantRefusal(t, again, serializer.ErrClosed)
	holder.Leave()
}

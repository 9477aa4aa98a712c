//go:build unix && !aix && !solaris

package serializer

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// replace renames a directory away and makes another in its place. It returns
// the new name of the old one.
func replace(t testing.TB, dir string) (old string) {
	t.Helper()
	old = dir + ".old"
	if err := os.Rename(dir, old); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return old
}

func openOS(t testing.TB, path string) *osDir {
	t.Helper()
	opened, err := openLockDir(path, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(opened.close)
	return opened.(*osDir)
}

// When the directory is replaced, holders finish first, including those of other engines.
// Waiters are refused, and numbers keep growing.
func TestDirectoryReplaced(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "locks")
	one, two := openAt(t, dir, 24*time.Hour), openAt(t, dir, 0)
	enter(t, two, arrival("b_")).Leave()
	holder := enter(t, one, arrival("a_"))
	waiting := started(two, arrival("a_"))
	wait.Until(t, "two waits", func() bool { return length(t, one, "a_") == 2 })

	replace(t, dir)
	r := <-waiting
	wantRefusal(t, r.err, ReasonStorage, errReplaced)
	next := started(two, arrival("a_"))
	stillWaits(t, next, "the old directory's holder is still inside")
	holder.Leave()
	turn := get(t, next)
	defer turn.Leave()
	if turn.Token() <= holder.Token() {
		t.Errorf("token %d after %d", turn.Token(), holder.Token())
	}
}

// Bug: an owner that came into the directory after the last look at it was not
// known when the directory was replaced, and not waited for.
func TestDirectoryReplacedBeforeOwnerWasSeen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "locks")
	knowing, fresh := openAt(t, dir, 0), openAt(t, dir, 0)
	enter(t, knowing, arrival("a_")).Leave()

	knowing.dir.syncing.Lock()
	holder := enter(t, fresh, arrival("a_"))
	replace(t, dir)
	knowing.retire(knowing.dir)
	old := knowing.replaced[0]
	old.syncing.Unlock()

	next := started(knowing, arrival("a_"))
	stillWaits(t, next, "the old directory's holder is still inside")
	holder.Leave()
	get(t, next).Leave()
}

// Bug: an engine that had retired a directory waited for the other processes there. If
// the directory returned before they had noticed, they never left it, and the engine
// waited for ever.
func TestDirectoryPutBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "locks")
	one, two := openAt(t, dir, 0), openAt(t, dir, 0)
	busy := enter(t, one, arrival("b_"))
	defer busy.Leave()
	enter(t, two, arrival("a_")).Leave()

	one.dir.syncing.Lock() // it notices nothing
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	old := two.dir
	wait.Until(t, "the second engine notices", func() bool { return old.retirementNow().retired })
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	one.dir.syncing.Unlock()
	get(t, started(two, arrival("a_"))).Leave()
}

// linkedDirs makes two lock directories, and a path that leads to the first of them.
func linkedDirs(t testing.TB) (path string, lead func(to string)) {
	t.Helper()
	base := t.TempDir()
	path = filepath.Join(base, "locks")
	for _, name := range []string{"first", "second"} {
		if err := os.Mkdir(filepath.Join(base, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	lead = func(to string) {
		t.Helper()
		if err := errors.Join(os.Symlink(to, path+".new"), os.Rename(path+".new", path)); err != nil {
			t.Fatal(err)
		}
	}
	lead("first")
	return path, lead
}

// gatedEngine opens an engine that, once gate is set, tells when it is about to open the
// directory again, and waits until it may.
func gatedEngine(t testing.TB, path string) (e *File, gate *atomic.Bool, opening, goOn chan struct{}) {
	t.Helper()
	gate, opening, goOn = new(atomic.Bool), make(chan struct{}), make(chan struct{})
	e = openAt(t, path, 0)
	e.open = func(path string, clock func() time.Time) (lockDir, error) {
		if gate.CompareAndSwap(true, false) {
			close(opening)
			<-goOn
		}
		return openLockDir(path, clock)
	}
	return e, gate, opening, goOn
}

// Bug: an engine ignored a retired directory once all other processes had left it. The
// directory could return and be replaced again. The engine then knew neither the turns
// that were out there nor their numbers. It admitted somebody beside them, with a smaller
// number.
func TestDirectoryPutBackAndReplaced(t *testing.T) {
	path, lead := linkedDirs(t)
	slow, gate, opening, goOn := gatedEngine(t, path)
	other := openAt(t, path, 24*time.Hour)
	enter(t, slow, arrival("a_")).Leave()
	enter(t, other, arrival("a_")).Leave()

	gate.Store(true)
	gone, left := slow.directory(), other.directory()
	lead("nowhere")
	wait.Until(t, "both have turned away", func() bool { return gone.retirementNow().retired && left.retirementNow().vacant })
	next := started(slow, arrival("a_"))
	<-opening // and is stopped there
	lead("first")
	holder := enter(t, other, arrival("a_"))
	lead("second")
	close(goOn)
	stillWaits(t, next, "the first directory's holder is still inside")
	holder.Leave()
	turn := get(t, next)
	defer turn.Leave()
	if turn.Token() <= holder.Token() {
		t.Errorf("token %d after %d", turn.Token(), holder.Token())
	}
}

// Bug: after an engine had given up its owner files, a new file got the same identity
// from the file system. The engine took it for its own, and did not wait for that file's
// owner.
func TestGivenUpOwnerFilesAreNotOurs(t *testing.T) {
	d := openOS(t, t.TempDir())
	if err := errors.Join(d.lock(), d.create(Ticket{Prefix: "a_", Stamp: minStamp}.Name(), minStamp, ownerKind{})); err != nil {
		t.Fatal(err)
	}
	id := d.ledgerFile.id
	if !d.owns(id) {
		t.Error("the owner file is not ours")
	}
	d.disown()
	if d.owns(id) {
		t.Error("the owner file is ours though it is given up")
	}
}

// An engine that waits for the turns in an old directory returns to it if the path leads
// there again. Other engines that have not noticed never leave it.
func TestDirectoryPutBackWhileWaitedFor(t *testing.T) {
	path, lead := linkedDirs(t)
	slow, gate, opening, goOn := gatedEngine(t, path)
	other := openAt(t, path, 0)
	busy := enter(t, other, arrival("b_"))
	defer busy.Leave()
	enter(t, slow, arrival("a_")).Leave()
	first := slow.dir

	gate.Store(true)
	unnoticed := other.dir
	unnoticed.syncing.Lock()
	lead("nowhere")
	wait.Until(t, "the engine has turned away", func() bool { return first.retirementNow().retired })
	lead("first")
	next := started(slow, arrival("a_"))
	<-opening
	lead("second")
	close(goOn)
	wait.Until(t, "the second directory is open", func() bool { return first.retirementNow().hasSuccessor })
	stillWaits(t, next, "somebody is inside the first")
	lead("first")
	unnoticed.syncing.Unlock()
	get(t, next).Leave()
	if unnoticed.retirementNow().retired {
		t.Error("the other engine has noticed")
	}
}

// A directory that is missing refuses, and serves again once it is back.
func TestDirectoryRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "locks")
	e := openAt(t, dir, 0)
	enter(t, e, arrival("a_")).Leave()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	_, err := e.Enter(context.Background(), arrival("a_"))
	wantRefusal(t, err, ReasonStorage, os.ErrNotExist)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	enter(t, e, arrival("a_")).Leave()
}

// Bug: after the guard file was removed, numbering went back to the clock, which may be
// behind.
func TestGuardRemoved(t *testing.T) {
	dir := t.TempDir()
	ahead, behind := openAt(t, dir, 24*time.Hour), openAt(t, dir, -time.Hour)
	enter(t, behind, arrival("a_")).Leave()
	first := enter(t, ahead, arrival("a_"))
	next := started(behind, arrival("a_"))
	wait.Until(t, "the next one waits", func() bool { return length(t, ahead, "a_") == 2 })
	if err := os.Remove(filepath.Join(dir, guardFile)); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, (<-next).err, ReasonStorage, errReplaced)
	again := started(behind, arrival("a_"))
	stillWaits(t, again, "the first is inside")
	first.Leave()
	turn := get(t, again)
	turn.Leave()
	if turn.Token() <= first.Token() {
		t.Errorf("token %d after %d", turn.Token(), first.Token())
	}
}

// Bug: a process was stopped while it held the guard, and the guard was replaced. When it
// continued, it made tickets with smaller numbers than those issued under the new guard.
// Two were inside at once.
func TestGuardRemovedFromUnderStopped(t *testing.T) {
	dir := t.TempDir()
	var stop atomic.Bool
	stopped, goOn := make(chan struct{}), make(chan struct{})
	slow, err := OpenFile(dir, FileOptions{Clock: func() time.Time {
		if stop.CompareAndSwap(true, false) {
			close(stopped)
			<-goOn
		}
		return time.Now()
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	enter(t, slow, arrival("b_")).Leave()
	stop.Store(true)
	late := started(slow, arrival("a_"))
	<-stopped
	if err := os.Remove(filepath.Join(dir, guardFile)); err != nil {
		t.Fatal(err)
	}
	inside := enter(t, openAt(t, dir, 0), arrival("a_"))
	stillWaits(t, late, "it is stopped")
	close(goOn)
	wantRefusal(t, (<-late).err, ReasonStorage, errReplaced)
	inside.Leave()
	get(t, started(slow, arrival("a_"))).Leave()
}

// A guard file that is empty or damaged is rewritten, with a number above all existing
// tickets.
func TestGuardSpoiled(t *testing.T) {
	for name, text := range map[string]string{
		"empty":     "",
		"nonsense":  "nonsense, and more\n",
		"cut":       "00001609693",
		"too small": "00001609693865378515\n",
		"too early": "00000000000000000001\n",
		"too late":  "99999999999999999999\n",
		"too long":  "00001609693865378515\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			ahead, behind := openAt(t, dir, 24*time.Hour), openAt(t, dir, -time.Hour)
			enter(t, behind, arrival("a_")).Leave()
			first := enter(t, ahead, arrival("a_"))
			if err := os.WriteFile(filepath.Join(dir, guardFile), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			next := started(behind, arrival("a_"))
			stillWaits(t, next, "the first is inside")
			first.Leave()
			turn := get(t, next)
			turn.Leave()
			if turn.Token() <= first.Token() {
				t.Errorf("token %d after %d", turn.Token(), first.Token())
			}
			recorded, err := openOS(t, dir).last()
			if err != nil || recorded != turn.Token() {
				t.Errorf("recorded %d, error %v, want %d", recorded, err, turn.Token())
			}
		})
	}
}

// An engine that is closed while it waits for an old directory's turns refuses.
func TestCloseWhileReplaced(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "locks")
	one, two := openAt(t, dir, 0), openAt(t, dir, 0)
	enter(t, two, arrival("b_")).Leave()
	holder := enter(t, one, arrival("a_"))
	defer holder.Leave()
	enter(t, two, arrival("b_")).Leave()
	replace(t, dir)
	next := started(two, arrival("a_"))
	stillWaits(t, next, "the old directory's holder is still inside")
	if err := two.Close(); err != nil {
		t.Fatal(err)
	}
	if err := (<-next).err; !errors.Is(err, ErrStorage) {
		t.Errorf("got %v", err)
	}
}

// Bug: an engine that was closed after its directory had been replaced did not
// wait until the old one was left. Its process ended and left its owner file.
func TestCloseLeavesReplacedDirectory(t *testing.T) {
	dir := t.TempDir()
	e, other := openAt(t, dir, 0), openAt(t, dir, 0)
	enter(t, e, arrival("a_")).Leave()
	holder := enter(t, other, arrival("a_"))
	defer holder.Leave()
	if err := os.Remove(filepath.Join(dir, guardFile)); err != nil {
		t.Fatal(err)
	}
	e.retire(e.dir)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(filesOf(t, dir)); n != 2 {
		t.Errorf("%d files are left, want the other's owner file and its ticket", n)
	}
}

// directory is the one that an engine works in. Its monitor may be about to turn away.
func (f *File) directory() *directory {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dir
}

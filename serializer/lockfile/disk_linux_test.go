package lockfile

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/name"
)

// smallDisk mounts a file system that is soon full.
func smallDisk(t testing.TB, options string) (dir string) {
	t.Helper()
	needRoot(t)
	dir = t.TempDir()
	must(t, unix.Mount("none", dir, "tmpfs", 0, "mode=0755,"+options))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// A disk on which there is no room for the store's own files is refused at once, and
// nothing stays on it. Bug: a directory stayed, with a guard, and the error was a "short write".
func TestDiskTooSmall(t *testing.T) {
	t.Parallel()
	for _, options := range []string{"size=64k", "nr_inodes=3"} {
		dir := smallDisk(t, options)
		_, err := Open(filepath.Join(dir, "queues"), Options{})
		if !errors.Is(err, serializer.ErrStorage) || !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v", options, err)
		}
		if files := filesOf(t, dir); len(files) > 0 {
			t.Errorf("%s: left behind: %q", options, files)
		}
	}
}

// A file system without hard links is refused, and the message says so. The system calls of
// a process are filtered for that: not every kernel has such a file system.
func TestNoHardLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	line := helper{Dir: dir, NoLinks: true}.run(t).says(t, "error: ")
	if !strings.Contains(line, dir) || !strings.Contains(line, "no hard links") {
		t.Error(line)
	}
	if files := filesOf(t, dir); len(files) > 0 {
		t.Errorf("left behind: %q", files)
	}
}

// If the disk is full, arrivals are refused, and leave no file. Nobody loses a place, and
// everything works once there is room. Bug: the error named the lock file of another request
// that had arrived at the same time, perhaps in another queue. Bug: the log said that an owner
// file was repaired for which there was no room.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t, "nr_inodes=9")
	e := open(t, dir)
	holder := enter(t, e, "a_")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var full error
	for n := 0; full == nil; n++ {
		done := make(chan error, 1)
		go func() {
			turn, err := e.Enter(ctx, arrival("a_"))
			if err == nil {
				turn.Leave()
			}
			done <- err
		}()
		wait.Until(t, "it has a ticket, or none", func() bool {
			select {
			case full = <-done:
				return true
			default:
				return length(t, e, "a_") == n+2
			}
		})
	}
	if !errors.Is(full, serializer.ErrStorage) || !errors.Is(full, unix.ENOSPC) || strings.Contains(full.Error(), "a_0000") {
		t.Errorf("got %v; expected that the disk is full, and no lock file's name", full)
	}
	if n, files := length(t, e, "a_"), filesWith(t, dir, "a_"); len(files) != n || n < 2 {
		t.Errorf("%d tickets have %d files", n, len(files))
	}
	own := filepath.Join(dir, e.ownFile())
	hear := e.deaf()
	remove(t, own)
	must(t, os.WriteFile(filepath.Join(dir, "fills"), nil, 0o600))
	hear()
	wait.Until(t, "the owner file is missed", func() bool { return e.log.has("file could not be repaired") })
	if e.log.has("file is repaired") {
		t.Error("it is said to be repaired")
	}
	must(t, unix.Mount("none", dir, "tmpfs", unix.MS_REMOUNT, "nr_inodes=1000"))
	last := joined(t, e, "a_")
	stillWaits(t, last, "others are before it")
	cancel()
	holder.Leave()
	last.Wait(t).Leave()
}

// setAppendOnly lets a directory or file only grow: nothing can be removed or linked.
func setAppendOnly(t testing.TB, path string, on bool) {
	t.Helper()
	const appendOnly = 0x20
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	flags, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS)
	flags &^= appendOnly
	if on {
		flags |= appendOnly
	}
	must(t, errors.Join(err, unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, flags)))
}

// Bug: a file that could not be removed blocked the removal of all later ones. The ticket
// of a finished request stayed, and other processes waited for it for ever. Bug: somebody else
// removed it. The ticket counted as one that is out, and a directory that was replaced was used
// for ever.
func TestLeftoverThatStays(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(smallDisk(t, "size=4m"), "locks")
	one, two := open(t, dir), open(t, dir)
	stays := filepath.Join(dir, unownedName("b_"))
	must(t, os.Mkdir(stays, 0o700))
	turn := enter(t, one, "a_")
	token := turn.Token()
	next := joined(t, two, "a_")
	setAppendOnly(t, dir, true)
	defer setAppendOnly(t, dir+".old", false)
	turn.Leave() // its owner says so, though the file stays
	turn = next.Wait(t)
	wait.Until(t, "it is logged", func() bool { return one.log.has("could not be removed", "operation not permitted") })
	turn.Leave()
	hear := one.deaf()
	setAppendOnly(t, dir, false)
	remove(t, fileOf(t, dir, token))
	hear()
	wait.Until(t, "the files are gone", func() bool { return len(filesWith(t, dir, "a_")) == 0 })
	remove(t, stays)
	movedAway(t, dir)
	enter(t, one, "a_").Leave()
}

// If file descriptors run out, nobody enters beside another, and tickets whose files are
// removed meanwhile keep their places. When there are some again, everything works.
func TestFileDescriptorsShort(t *testing.T) {
	dir, one, two := openTwo(t)
	holder := helper{Dir: dir, Queue: "a_"}.inside(t)
	first := joined(t, one, "a_")
	late := helper{Dir: dir, Queue: "a_"}.start(t) // an owner that two has not met
	token := tokenAt(t, one, "a_", 0)
	file := fileOf(t, dir, token)
	var limit unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	set := func(l unix.Rlimit) {
		t.Helper()
		must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &l))
	}
	unknown := helper{Dir: dir, Queue: "a_"}
	hear := two.deaf()
	behind := unknown.start(t)
	behind.do(t, "enter")
	wait.Until(t, "it waits", func() bool { return length(t, one, "a_") == 3 })
	holder.halt(t)
	set(unix.Rlimit{Cur: 3, Max: limit.Max})
	hear()
	refused := started(two, "a_").End(t)
	err := os.Remove(file)
	wait.Poll(3*tickInterval, first.Over)
	set(limit)
	if err != nil || !errors.Is(refused, serializer.ErrStorage) || !errors.Is(refused, unix.EMFILE) {
		t.Errorf("got %v, %v; expected that there are no descriptors", refused, err)
	}
	wait.Until(t, "the owner files are open", func() bool { defer two.deaf()(); return two.dir().unreadable == nil })
	next := started(two, "a_")
	stillWaits(t, first, "the holder is stopped")
	stillWaits(t, next, "the holder is stopped")
	holder.Signal(syscall.SIGCONT)
	holder.leave(t)
	first.Wait(t).Leave()
	behind.says(t, "inside")
	stillWaits(t, next, "somebody is inside")
	behind.leave(t)
	next.Wait(t).Leave()
	late.enter(t, "inside")
}

// What the processes of a directory hold open does not grow with the turns.
//
// Bug: an owner's second file, after somebody had removed the first, was gone before another
// process had opened it. That process waited for ever for a ticket that it saw last.
func TestDescriptorsDoNotGrow(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "locks")
	count := func() int { return len(filesOf(t, "/proc/self/fd")) }
	cycle := func() {
		one, two := open(t, dir), open(t, dir)
		for range 2 {
			turn := enter(t, one, "a_")
			next := joined(t, two, "a_")
			for _, file := range filesWith(t, dir, name.Owners) {
				remove(t, filepath.Join(dir, file))
			}
			turn.Leave()
			next.Wait(t).Leave()
			movedAway(t, dir)
			enter(t, one, "a_").Leave()
			enter(t, two, "a_").Leave()
			must(t, os.RemoveAll(dir+".old"))
			remove(t, filepath.Join(dir, name.Guard))
			enter(t, two, "a_").Leave()
		}
		wantFiles(t, dir, []string{name.Guard}, one, two)
	}
	cycleOnce := func() {
		_ = os.RemoveAll(dir)
		cycle()
	}
	cycleOnce()
	before := count()
	for range 2 {
		cycleOnce()
	}
	if !wait.Poll(10*time.Second, func() bool { return count() <= before+2 }) {
		t.Errorf("%d descriptors are open after %d", count(), before)
	}
}

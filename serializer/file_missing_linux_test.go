//go:build unix && !aix && !solaris

package serializer

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

func removeOwners(t testing.TB, dir string) {
	t.Helper()
	for _, name := range filesOf(t, dir) {
		if strings.HasPrefix(name, ownerFiles) {
			if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
		}
	}
}

// Bug: when another program removed the holder's lock file, another process noticed that
// and entered before the owner had put the file back.
func TestHolderFileRemoved(t *testing.T) {
	for _, c := range []struct {
		name           string
		noLinks, owner bool
	}{{"links", false, false}, {"files of their own", true, false}, {"with the owner file", false, true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			one, other := openAt(t, dir, 0), openAt(t, dir, 0)
			for _, e := range []*File{one, other} {
				if c.noLinks {
					e.open = openWithoutLinks
				}
				enter(t, e, arrival("b_")).Leave()
			}
			holder := enter(t, one, arrival("a_"))
			next := started(other, arrival("a_"))
			wait.Until(t, "the next one waits", func() bool { return length(t, one, "a_") == 2 })
			token := tokenText(holder.Token())
			for end, n := time.Now().Add(500*time.Millisecond), 0; time.Now().Before(end) || n < 3; {
				if removeHolder(t, dir, token) {
					n++
					if c.owner {
						removeOwners(t, dir)
					}
				}
				select {
				case r := <-next:
					t.Fatalf("the next one is inside beside the holder, after %d removals; error %v", n, r.err)
				default:
				}
			}
			holder.Leave()
			get(t, next).Leave()
		})
	}
}

// removeHolder removes the lock file with a token, if it is there.
func removeHolder(t testing.TB, dir, token string) bool {
	t.Helper()
	for _, name := range filesOf(t, dir) {
		if strings.Contains(name, token) && !strings.HasPrefix(name, ownFiles) {
			return os.Remove(filepath.Join(dir, name)) == nil
		}
	}
	return false
}

func openWithoutLinks(path string, clock func() time.Time) (lockDir, error) {
	opened, err := openLockDir(path, clock)
	if err == nil {
		opened.(*osDir).noLinks.Store(true)
	}
	return opened, err
}

// Nobody enters while a holder's file is missing, even if its process is stopped and
// cannot put it back. That applies to processes that knew the file, and to those that
// start later. They enter when the holder continues, or is killed.
func TestHolderFileRemovedWhileStopped(t *testing.T) {
	for _, how := range []syscall.Signal{syscall.SIGCONT, syscall.SIGKILL} {
		t.Run(how.String(), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			known := openAt(t, dir, 0)
			enter(t, known, arrival("b_")).Leave()
			holder := helper{Dir: dir, Queue: "a_"}.start(t)
			holder.says(t, "open")
			holder.says(t, "inside")
			next := started(known, arrival("a_"))
			wait.Until(t, "the next one waits", func() bool { return length(t, known, "a_") == 2 })
			holder.signal(t, syscall.SIGSTOP)
			holder.stopped(t)
			token := queueOf(t, known, "a_").Tickets[0].Token
			if !removeHolder(t, dir, token) {
				t.Fatal("the holder's file was not there")
			}
			newcomer := openAt(t, dir, 0)
			last, elsewhere := started(newcomer, arrival("a_")), started(newcomer, arrival("c_"))
			stillWaits(t, next, "the holder is stopped, and its file missing")
			stillWaits(t, last, "the holder is stopped, and its file missing; the newcomer never saw it")
			stillWaits(t, elsewhere, "nobody can tell which queue the missing file is of")
			holder.signal(t, how)
			get(t, elsewhere).Leave()
			if how == syscall.SIGCONT {
				stillWaits(t, next, "the holder is inside again")
				holder.leave(t)
			}
			get(t, next).Leave()
			get(t, last).Leave()
		})
	}
}

// A waiter whose file is removed is refused as if evicted, and the others continue in
// order.
func TestWaitingFileRemoved(t *testing.T) {
	dir := t.TempDir()
	one, other := openAt(t, dir, 0), openAt(t, dir, 0)
	enter(t, other, arrival("b_")).Leave()
	holder := enter(t, one, arrival("a_"))
	second, third := join(t, one, arrival("a_")), join(t, other, arrival("a_"))
	wait.Until(t, "all are in the queue", func() bool { return length(t, one, "a_") == 3 })
	removeHolder(t, dir, queueOf(t, one, "a_").Tickets[1].Token)
	wantRefusal(t, (<-second).err, ReasonEvicted, ErrEvicted)
	stillWaits(t, third, "the holder is inside")
	holder.Leave()
	get(t, third).Leave()
}

// The owner file itself is put back while tickets are linked to it, so that a process
// that comes later finds its ledger. It disappears with its owner.
func TestOwnerFileRemoved(t *testing.T) {
	dir := t.TempDir()
	one, other := openAt(t, dir, 0), openAt(t, dir, 0)
	holder := enter(t, one, arrival("a_"))
	owner := onlyOwner(t, dir)
	removeOwners(t, dir)
	wait.Until(t, "it is back", func() bool { return onlyOwner(t, dir) == owner })
	removeHolder(t, dir, tokenText(holder.Token()))
	next := started(other, arrival("a_"))
	stillWaits(t, next, "the first is inside")
	holder.Leave()
	get(t, next).Leave()
	if err := errors.Join(one.Close(), other.Close()); err != nil {
		t.Fatal(err)
	}
	if files := filesOf(t, dir); len(files) != 1 {
		t.Errorf("left behind: %v", files)
	}
}

func onlyOwner(t testing.TB, dir string) (found string) {
	t.Helper()
	for _, name := range filesOf(t, dir) {
		if strings.HasPrefix(name, ownerFiles) {
			found = name
		}
	}
	return found
}

// An owner of an older version has no ledger. If its file disappears, the ticket counts
// as left, whoever removed the file.
func TestOwnerWithoutLedger(t *testing.T) {
	dir := t.TempDir()
	e := openAt(t, dir, 0)
	enter(t, e, arrival("b_")).Leave()
	ticket, die := deadOwner(t, dir, "a_")
	defer die()
	if err := os.Truncate(filepath.Join(dir, ticket), maxOwnerSize); err != nil {
		t.Fatal(err)
	}
	next := started(e, arrival("a_"))
	stillWaits(t, next, "the first is inside")
	if err := os.Remove(filepath.Join(dir, ticket)); err != nil {
		t.Fatal(err)
	}
	get(t, next).Leave()
}

// A truncated owner file crashes nobody: processes that have mapped it continue.
func TestOwnerFileTruncated(t *testing.T) {
	for _, size := range []int64{0, 100, ledgerOffset, ledgerOffset + 4096} {
		dir := t.TempDir()
		one, other := openAt(t, dir, 0), openAt(t, dir, 0)
		for _, e := range []*File{one, other} {
			enter(t, e, arrival("a_")).Leave()
		}
		for _, name := range filesOf(t, dir) {
			if strings.HasPrefix(name, ownerFiles) {
				if err := os.Truncate(filepath.Join(dir, name), size); err != nil {
					t.Fatal(err)
				}
			}
		}
		for range 3 {
			first := enter(t, one, arrival("a_"))
			next := started(other, arrival("a_"))
			stillWaits(t, next, "the first is inside")
			first.Leave()
			get(t, next).Leave()
		}
	}
}

// Cleanup programs go by the times of files. A ticket has the times of its owner file,
// however old that is.
func TestFilesStayFresh(t *testing.T) {
	dir := t.TempDir()
	d := openOS(t, dir)
	if err := d.create(Ticket{Prefix: "a_", Stamp: minStamp}.Name(), minStamp, ownerKind{}); err != nil {
		t.Fatal(err)
	}
	old := []unix.Timeval{{Sec: 1_000_000_000}, {Sec: 1_000_000_000}}
	for _, name := range filesOf(t, dir) {
		if err := unix.Utimes(filepath.Join(dir, name), old); err != nil {
			t.Fatal(err)
		}
	}
	d.refresh()
	for _, name := range filesOf(t, dir) {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(dir, name), &st); err != nil {
			t.Fatal(err)
		}
		accessed, _ := st.Atim.Unix()
		changed, _ := st.Mtim.Unix()
		if since := time.Now().Unix() - min(accessed, changed); since > 60 {
			t.Errorf("%s looks %d seconds old", name, since)
		}
	}
}

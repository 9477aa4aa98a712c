package lockfile

import (
	"errors"
	"fmt"
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

// Two users that need not exist, and a group.
const (
	alice, bob = 54321, 54322
	group      = 54320
)

func needRoot(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("becoming other users needs root: sudo go test ./serializer/lockfile")
	}
}

// dirOf makes a directory that others can reach.
func dirOf(t testing.TB, uid, gid int, mode os.FileMode) string {
	t.Helper()
	needRoot(t)
	dir, err := os.MkdirTemp("", "users")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, errors.Join(os.Chown(dir, uid, gid), os.Chmod(dir, mode)))
	return dir
}

// publicDir is a directory like the system's temporary one.
func publicDir(t testing.TB) string { return dirOf(t, 0, 0, 0o777|os.ModeSticky) }

func statOf(t testing.TB, path string) (st unix.Stat_t) {
	t.Helper()
	must(t, unix.Lstat(path, &st))
	return st
}

// Users do not obstruct each other in a directory that everybody may write to: each has one of
// its own there, which the others cannot read. Bug: one that was there stayed open to others.
func TestUsersInDirectoryForAll(t *testing.T) {
	t.Parallel()
	dir := publicDir(t)
	for _, uid := range []int{alice, bob} {
		own := filepath.Join(dir, fmt.Sprintf("orderly-%d", uid))
		if uid == alice {
			must(t, errors.Join(os.Mkdir(own, 0o755), os.Chown(own, uid, uid)))
		}
		helper{UID: uid, GID: uid, Dir: dir, Queue: "a_"}.inside(t)
		if st, n := statOf(t, own), len(filesWith(t, own, "a_")); st.Uid != uint32(uid) || st.Mode&0o777 != 0o700 || n != 1 {
			t.Errorf("%s is of user %d, has mode %o and %d tickets", own, st.Uid, st.Mode, n)
		}
	}
}

// What another user has put in the place of a user's directory is refused, and nothing is
// written through it.
func TestNameOfUsersDirectoryTaken(t *testing.T) {
	for label, plant := range map[string]func(path, victim string) error{
		"directory":     func(path, _ string) error { return os.Mkdir(path, 0o777) },
		"file":          func(path, _ string) error { return os.WriteFile(path, nil, 0o666) },
		"pipe":          func(path, _ string) error { return unix.Mkfifo(path, 0o666) },
		"symbolic link": func(path, victim string) error { return os.Symlink(victim, path) },
		"link to alice's own": func(path, victim string) error {
			return errors.Join(os.Chown(victim, alice, alice), os.Symlink(victim, path))
		},
		"dangling link": func(path, victim string) error { return os.Symlink(victim+".new", path) },
		"alice's, open for all": func(path, _ string) error {
			return errors.Join(os.Mkdir(path, 0o777), os.Chmod(path, 0o777), os.Chown(path, alice, alice))
		},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			dir, victim := publicDir(t), dirOf(t, bob, bob, 0o777)
			path := filepath.Join(dir, fmt.Sprintf("orderly-%d", alice))
			must(t, plant(path, victim))
			if !strings.HasPrefix(label, "alice") {
				must(t, os.Lchown(path, bob, bob))
			}
			p := helper{UID: alice, GID: alice, Dir: dir, Queue: "a_"}.run(t)
			if line := p.says(t, "error: "); !strings.Contains(line, "everybody may write there, and "+path+" is no directory that belongs to user") {
				t.Errorf("the message does not name %s: %s", path, line)
			}
			if files := filesOf(t, victim); len(files) != 0 || exists(victim+".new") {
				t.Errorf("made through the link: %q", files)
			}
		})
	}
}

// A file of the user's own, or of root, that stands in the guard's place is refused,
// nothing is written to it or through it, and the message says what to do.
func TestPlantedGuard(t *testing.T) {
	for label, plant := range map[string]func(guard, victim string) error{
		"symbolic link": func(guard, victim string) error { return os.Symlink(victim, guard) },
		"dangling link": func(guard, victim string) error { return os.Symlink(victim+".new", guard) },
		"hard link":     func(guard, victim string) error { return os.Link(victim, guard) },
		"pipe":          func(guard, _ string) error { return unix.Mkfifo(guard, 0o666) },
		"directory":     func(guard, _ string) error { return os.Mkdir(guard, 0o777) },
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			victim := touch(t, dir, "victim")
			must(t, os.WriteFile(victim, []byte("precious"), 0o600))
			guard := filepath.Join(dir, name.Guard)
			must(t, plant(guard, victim))
			_, err := Open(dir, Options{})
			if !errors.Is(err, serializer.ErrStorage) || !strings.Contains(err.Error(), guard) || !strings.Contains(err.Error(), "remove it") {
				t.Errorf("got %v", err)
			}
			// Bug: after a directory was copied with its links, the error said that the guard was none.
			if strings.Contains(err.Error(), "copy of the directory") != (label == "hard link") {
				t.Errorf("got %v", err)
			}
			if text, err := os.ReadFile(victim); err != nil || string(text) != "precious" || exists(victim+".new") {
				t.Errorf("the file behind the link: %q, %v", text, err)
			}
			if files := filesOf(t, dir); len(files) != 2 {
				t.Errorf("left behind: %q", files)
			}
			remove(t, guard)
			enter(t, open(t, dir), "a_").Leave()
		})
	}
}

// Without the sticky bit, users may exchange the directories of others. Bug: root changed the
// mode of what another user's link led to.
func TestPublicDirectoryWithoutStickyBit(t *testing.T) {
	t.Parallel()
	dir := dirOf(t, 0, 0, 0o777)
	line := helper{UID: alice, GID: alice, Dir: dir}.run(t).says(t, "error: ")
	if !strings.Contains(line, dir) || !strings.Contains(line, "chmod +t") {
		t.Errorf("the message is %s", line)
	}
	if files := filesOf(t, dir); len(files) > 0 {
		t.Errorf("made there: %q", files)
	}
}

// Users who share a group and a directory share its queues, whatever their umasks are. They
// only read each other's owner files. Bug: one could empty another's, and two were inside.
func TestGroupSharesQueues(t *testing.T) {
	t.Parallel()
	dir := dirOf(t, 0, group, 0o770|os.ModeSetgid)
	first := helper{UID: alice, GID: group, Dir: dir, Queue: "a_"}.inside(t)
	for _, file := range filesWith(t, dir, name.Owners) {
		if mode := statOf(t, filepath.Join(dir, file)).Mode & 0o777; mode != 0o640 {
			t.Errorf("%s has the mode %o", file, mode)
		}
	}
	second := helper{UID: bob, GID: group, Dir: dir, Queue: "a_"}.waits(t, "the first is inside")
	third := helper{UID: alice, GID: group, Dir: dir, Queue: "a_", Timeout: 100 * time.Millisecond}.start(t)
	third.do(t, "enter")
	if line := third.says(t, "error: "); !strings.Contains(line, serializer.ErrTimeout.Error()) {
		t.Errorf("%s", line)
	}
	first.Signal(syscall.SIGKILL)
	second.says(t, "inside")
	second.leave(t)
}

// Bug: where the sticky bit kept a user from removing the files of another one's dead
// process, arrivals waited for ever. Now only those may use it who can remove them.
func TestStickyDirectory(t *testing.T) {
	t.Parallel()
	dir := dirOf(t, alice, group, 0o770|os.ModeSetgid|os.ModeSticky)
	refused := helper{UID: bob, GID: group, Dir: dir}.run(t).says(t, "error: ")
	if !strings.Contains(refused, dir) || !strings.Contains(refused, "sticky bit") {
		t.Errorf("the message is %s", refused)
	}
	first := helper{Dir: dir, Queue: "a_"}.inside(t)
	first.Signal(syscall.SIGKILL)
	helper{UID: alice, GID: group, Dir: dir, Queue: "a_"}.inside(t)
}

// Bug: after a directory was opened to a group, its guard stayed closed to the group for
// good, even when the processes were started again.
func TestDirectoryOpenedToGroup(t *testing.T) {
	t.Parallel()
	dir := dirOf(t, 0, 0, 0o700)
	before := open(t, dir)
	enter(t, before, "a_").Leave()
	must(t, before.Close())
	must(t, errors.Join(os.Chown(dir, 0, group), os.Chmod(dir, 0o770|os.ModeSetgid)))
	turn := enter(t, open(t, dir), "a_")
	second := helper{UID: bob, GID: group, Dir: dir, Queue: "a_"}.waits(t, "the first is inside")
	turn.Leave()
	second.says(t, "inside")
}

// If an owner's file cannot be opened, arrivals are refused at once, and the message names
// it: the places of the owner's tickets are not known. Those that are in the queue continue.
// Bug: they waited without a log entry.
func TestOwnerThatCannotBeProbed(t *testing.T) {
	t.Parallel()
	dir := dirOf(t, 0, group, 0o770|os.ModeSetgid)
	p := helper{UID: alice, GID: group, Dir: dir, Queue: "a_"}.inside(t)
	next := helper{UID: alice, GID: group, Dir: dir, Queue: "a_"}.waits(t, "the first is inside")
	late := touch(t, dir, name.Owners+"late-1")
	for range 2 {
		refused := helper{UID: alice, GID: group, Dir: dir, Queue: "a_"}.start(t)
		refused.do(t, "enter")
		line := refused.says(t, "error: ")
		for _, want := range []string{filepath.Base(late), "permission denied"} {
			if !strings.Contains(line, want) {
				t.Errorf("the message does not say %q: %s", want, line)
			}
		}
	}
	if tickets := filesWith(t, dir, "a_"); len(tickets) != 2 {
		t.Errorf("the directory has %q; expected two tickets", tickets)
	}
	p.leave(t)
	next.says(t, "inside")
	remove(t, late)
	p.do(t, "enter")
	p.saysNothing(t, "the second is inside")
	next.leave(t)
	p.says(t, "inside")
}

// On a system that reports no changes, the directory is listed again and again.
func TestSystemWithoutNotifications(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := open(t, dir)
	holder := enter(t, e, "a_")
	polling := helper{Dir: dir, Queue: "a_", Deaf: true}.start(t)
	polling.do(t, "enter")
	wait.Until(t, "it waits", func() bool { return length(t, e, "a_") == 2 })
	remove(t, fileOf(t, dir, holder.Token()))
	polling.saysNothing(t, "the first is inside")
	next := joined(t, e, "a_")
	holder.Leave()
	polling.says(t, "inside")
	remove(t, fileOf(t, dir, tokenAt(t, e, "a_", 0)))
	stillWaits(t, next, "the second is inside")
	polling.leave(t)
	turn := next.Wait(t)
	polling.do(t, "enter")
	polling.saysNothing(t, "the third is inside")
	turn.Leave()
	polling.says(t, "inside")
	polling.Signal(syscall.SIGKILL)
	started(e, "a_").Wait(t).Leave()
}

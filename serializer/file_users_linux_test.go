package serializer

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// Two users that need not exist, and a group.
const (
	alice, bob = 54321, 54322
	group      = 54320
)

func needRoot(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("becoming other users needs root: sudo go test ./serializer")
	}
}

// publicDir is a directory like the system's temporary one.
func publicDir(t testing.TB) string {
	t.Helper()
	needRoot(t)
	return dirOf(t, 0, 0o777|os.ModeSticky)
}

func dirOf(t testing.TB, gid int, mode os.FileMode) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "users")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := errors.Join(os.Chown(dir, 0, gid), os.Chmod(dir, mode)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// plant makes a file that belongs to a user.
func plant(t testing.TB, uid int, text string, path ...string) string {
	t.Helper()
	name := filepath.Join(path...)
	if err := errors.Join(os.WriteFile(name, []byte(text), 0o644), os.Lchown(name, uid, -1)); err != nil {
		t.Fatal(err)
	}
	return name
}

// In a directory that everybody may write to, such as the default one, each user has
// separate queues, including root. Bug: the second user was refused, because the guard
// belonged to the first.
func TestPublicDirectoryServesEachUser(t *testing.T) {
	dir := publicDir(t)
	for _, user := range []int{alice, 0, bob} {
		first := helper{UID: user, GID: user, Dir: dir, Queue: "a_"}.start(t)
		first.says(t, "open")
		first.says(t, "inside")
		second := helper{UID: user, GID: user, Dir: dir, Queue: "a_", Timeout: 50 * time.Millisecond}.start(t)
		second.says(t, "open")
		if line := second.says(t, "error: "); !strings.Contains(line, ErrTimeout.Error()) {
			t.Errorf("the second of user %d: %s", user, line)
		}
	}
	queues, err := Inspect(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range queues {
		if q.Prefix != "a_" || q.Inside != 1 || q.Waiting != 0 {
			t.Errorf("a queue is %+v", q)
		}
	}
	if len(queues) != 3 {
		t.Errorf("%d queues are listed; expected one for each user", len(queues))
	}
	token, err := strconv.ParseUint(queues[2].Tickets[0].Token, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := EvictFrom(ctx, dir, "a_", token, true); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("evicting another user's ticket as root: %v", err)
	}
}

// Another user's tickets, owner files and markers do not count.
func TestPublicDirectoryIgnoresOthersFiles(t *testing.T) {
	dir := publicDir(t)
	early := Ticket{Prefix: "a_", Stamp: minStamp}.Name()
	plant(t, bob, "", dir, early)
	plant(t, bob, string(Owner{Started: time.Now(), Rule: Rule{Shared: true}}.text()), dir, ownerFiles+"bob")
	if err := os.Link(filepath.Join(dir, ownerFiles+"bob"), filepath.Join(dir, Ticket{Prefix: "a_", Stamp: minStamp + 1}.Name())); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Symlink("/etc/passwd", filepath.Join(dir, Ticket{Prefix: "a_", Stamp: minStamp + 2}.Name())),
		os.Lchown(filepath.Join(dir, Ticket{Prefix: "a_", Stamp: minStamp + 2}.Name()), bob, bob)); err != nil {
		t.Fatal(err)
	}
	p := helper{UID: alice, GID: alice, Dir: dir, Queue: "a_"}.start(t)
	p.says(t, "open")
	p.says(t, "inside")

	var token uint64
	for _, name := range filesOf(t, dir) {
		if ticket, err := ParseTicket(name); err == nil {
			token = max(token, ticket.Stamp)
		}
	}
	marker := evictMarker + string(appendDigits(nil, token, stampDigits))
	plant(t, bob, "", dir, marker)
	select {
	case line := <-p.lines:
		t.Errorf("the marker of another user was obeyed: %q", line)
	case <-time.After(3 * tickInterval):
	}
	p.leave(t)
	for _, name := range []string{early, ownerFiles + "bob", marker} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			t.Errorf("%v", err)
		}
	}
}

// Root's files do not count for other users either. Bug: tickets of a killed process of
// root blocked all other users for ever, because they could not probe them.
func TestPublicDirectoryIgnoresRoot(t *testing.T) {
	dir := publicDir(t)
	root := helper{Dir: dir, Queue: "a_"}.start(t)
	root.says(t, "open")
	root.says(t, "inside")
	if err := root.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p := helper{UID: alice, GID: alice, Dir: dir, Queue: "a_", Timeout: patience}.start(t)
	p.says(t, "open")
	p.says(t, "inside")
	p.leave(t)
}

// A file that somebody else has put in the guard's place, under any of its names, stops
// nobody, and nothing is written through it.
func TestPlantedGuard(t *testing.T) {
	for name, plantIt := range map[string]func(t *testing.T, guard, victim string) error{
		"symbolic link":          func(t *testing.T, guard, victim string) error { return os.Symlink(victim, guard) },
		"dangling symbolic link": func(t *testing.T, guard, victim string) error { return os.Symlink(victim+".new", guard) },
		"pipe":                   func(t *testing.T, guard, victim string) error { return unix.Mkfifo(guard, 0o666) },
		"directory":              func(t *testing.T, guard, victim string) error { return os.Mkdir(guard, 0o777) },
		"another's file": func(t *testing.T, guard, victim string) error {
			plant(t, bob, "", guard)
			return os.Chmod(guard, 0o666)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := publicDir(t)
			victim := plant(t, alice, "precious", dir, "victim")
			for _, guard := range guardNames(true, alice)[:3] {
				if err := errors.Join(plantIt(t, filepath.Join(dir, guard), victim), os.Lchown(filepath.Join(dir, guard), bob, bob)); err != nil {
					t.Fatal(err)
				}
			}
			p := helper{UID: alice, GID: alice, Dir: dir, Queue: "a_"}.start(t)
			p.says(t, "open")
			p.says(t, "inside")
			// Names that are free again do not lead the user's other processes
			// astray.
			for _, guard := range guardNames(true, alice)[:3] {
				if err := os.Remove(filepath.Join(dir, guard)); err != nil {
					t.Fatal(err)
				}
			}
			second := helper{UID: alice, GID: alice, Dir: dir, Queue: "a_"}.start(t)
			second.says(t, "open")
			select {
			case line := <-second.lines:
				t.Errorf("beside the first, the second says %q", line)
			case <-time.After(3 * tickInterval):
			}
			p.leave(t)
			second.says(t, "inside")
			second.leave(t)
			if text, err := os.ReadFile(victim); err != nil || string(text) != "precious" {
				t.Errorf("the file behind the link: %q, %v", text, err)
			}
			if _, err := os.Lstat(victim + ".new"); err == nil {
				t.Error("a file was made through the link")
			}
		})
	}
}

// A link to a file of the user's own is refused: to ignore it could separate the
// user's processes. If all names are taken, the message says what to do.
func TestGuardRefused(t *testing.T) {
	t.Run("hard link", func(t *testing.T) {
		dir := publicDir(t)
		victim := plant(t, alice, "precious", dir, "victim")
		if err := os.Link(victim, filepath.Join(dir, guardFile)); err != nil {
			t.Fatal(err)
		}
		p := helper{UID: alice, GID: alice, Dir: dir, Queue: "a_"}.start(t)
		if line := p.says(t, "error: "); !strings.Contains(line, filepath.Join(dir, guardFile)) || !strings.Contains(line, "remove it") {
			t.Errorf("%s", line)
		}
		if text, err := os.ReadFile(victim); err != nil || string(text) != "precious" {
			t.Errorf("the file behind the link: %q, %v", text, err)
		}
	})
	t.Run("all names taken", func(t *testing.T) {
		dir := publicDir(t)
		for _, name := range guardNames(true, alice) {
			plant(t, bob, "", dir, name)
		}
		p := helper{UID: alice, GID: alice, Dir: dir, Queue: "a_"}.start(t)
		if line := p.says(t, "error: "); !strings.Contains(line, "choose a directory of your own") {
			t.Errorf("%s", line)
		}
	})
}

// Two processes of a user that found different guards, because a name became
// free in between, agree on one.
func TestGuardsOfOneUser(t *testing.T) {
	dir := publicDir(t)
	taken := plant(t, bob, "", dir, guardFile)
	e := openAt(t, dir, 0)
	turn := enter(t, e, arrival("a_"))
	turn.Leave()
	if err := errors.Join(os.Remove(taken), os.WriteFile(taken, nil, 0o600)); err != nil { // as the other one would
		t.Fatal(err)
	}
	enter(t, e, arrival("a_")).Leave()
	if text, err := os.ReadFile(taken); err != nil || len(text) == 0 {
		t.Errorf("the guard that counts has %q, %v", text, err)
	}
}

// Root's files in a service's directory belong to the service. Bug: the guard and the
// owner files were root's, and the service could not open them. The tickets of a killed
// process of root blocked it for ever.
func TestRootGivesFilesToTheDirectorysOwner(t *testing.T) {
	needRoot(t)
	for name, mode := range map[string]os.FileMode{"own": 0o750, "group": 0o770 | os.ModeSetgid} {
		t.Run(name, func(t *testing.T) {
			dir := dirOf(t, group, mode)
			uid, gid := alice, alice
			if name == "own" {
				if err := os.Chown(dir, alice, alice); err != nil {
					t.Fatal(err)
				}
			} else {
				gid = group // the directory is root's; its group works in it
			}
			root := helper{Dir: dir, Queue: "a_"}.start(t)
			root.says(t, "open")
			root.says(t, "inside")
			p := helper{UID: uid, GID: gid, Dir: dir, Queue: "a_", Timeout: patience}.start(t)
			p.says(t, "open")
			if err := root.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			p.says(t, "inside")
			p.leave(t)
		})
	}
}

// A guard that root made earlier is given to the directory's owner when root
// opens the directory again. A file that only has the guard's name is not.
func TestRootGivesTheGuard(t *testing.T) {
	needRoot(t)
	for text, given := range map[string]int{"": alice, "01795238222032978000\n": alice, "a secret of root's, moved here": 0} {
		dir := dirOf(t, alice, 0o750)
		if err := os.Chown(dir, alice, alice); err != nil {
			t.Fatal(err)
		}
		guard := plant(t, 0, text, dir, guardFile)
		if err := os.Chmod(guard, 0o600); err != nil {
			t.Fatal(err)
		}
		e, err := OpenFile(dir, FileOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		var st unix.Stat_t
		if err := unix.Stat(guard, &st); err != nil || int(st.Uid) != given {
			t.Errorf("the guard with %q belongs to user %d, %v; expected %d", text, st.Uid, err, given)
		}
	}
}

// A directory that root makes belongs to its parent's owner, unless everybody may
// write to the parent.
func TestRootGivesDirectories(t *testing.T) {
	needRoot(t)
	for _, c := range []struct {
		name string
		mode os.FileMode
		uid  int
	}{{"a service's", 0o755, alice}, {"everybody's", 0o777 | os.ModeSticky, 0}} {
		t.Run(c.name, func(t *testing.T) {
			parent := dirOf(t, alice, c.mode)
			if err := errors.Join(os.Chown(parent, alice, alice), os.Chmod(parent, c.mode)); err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(parent, "a", "b")
			e, err := OpenFile(dir, FileOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			for _, made := range []string{filepath.Dir(dir), dir} {
				var st unix.Stat_t
				if err := unix.Stat(made, &st); err != nil || int(st.Uid) != c.uid || st.Mode&0o777 != 0o750 {
					t.Errorf("%s belongs to user %d with mode %o, %v; expected user %d", made, st.Uid, st.Mode, err, c.uid)
				}
			}
		})
	}
}

// If an owner cannot be probed, because its file belongs to another user, requests are
// refused at once, with its name. Bug: they waited without a log entry.
func TestOwnerThatCannotBeProbed(t *testing.T) {
	needRoot(t)
	dir := dirOf(t, alice, 0o750)
	if err := os.Chown(dir, alice, alice); err != nil {
		t.Fatal(err)
	}
	ticket := Ticket{Prefix: "a_", Stamp: minStamp}.Name()
	if err := os.Chmod(plant(t, bob, string(Owner{Started: time.Now()}.text()), dir, ticket), 0o600); err != nil {
		t.Fatal(err)
	}
	p := helper{UID: alice, GID: alice, Dir: dir, Queue: "a_"}.start(t) // without a timeout
	p.says(t, "open")
	line := p.says(t, "error: ")
	for _, want := range []string{ticket, "permission denied", "user 54322"} {
		if !strings.Contains(line, want) {
			t.Errorf("the message does not say %q: %s", want, line)
		}
	}
	for _, name := range filesOf(t, dir) {
		if found, err := ParseTicket(name); err == nil && found.Stamp != minStamp {
			t.Errorf("the lock file %s is left", name)
		}
	}
}

// The same user's links in the place of tickets and owner files are unowned files:
// arrivals wait for them, and do not follow them.
func TestPlantedTicket(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(t.TempDir(), "target")
	touch(t, target)
	link := filepath.Join(dir, Ticket{Prefix: "a_", Stamp: minStamp}.Name())
	if err := errors.Join(os.Symlink(target, link), os.Symlink(target, filepath.Join(dir, ownerFiles+"link"))); err != nil {
		t.Fatal(err)
	}
	e := openAt(t, dir, 0)
	next := started(e, arrival("a_"))
	stillWaits(t, next, "the link is first")
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	get(t, next).Leave()
	if _, err := os.Lstat(target); err != nil {
		t.Error(err)
	}
}

// Users who share a group and a directory share its queues, whatever their
// umasks are.
func TestGroupSharesQueues(t *testing.T) {
	needRoot(t)
	dir := dirOf(t, group, 0o770|os.ModeSetgid)
	first := helper{UID: alice, GID: group, Dir: dir, Queue: "a_"}.start(t)
	first.says(t, "open")
	first.says(t, "inside")
	second := helper{UID: bob, GID: group, Dir: dir, Queue: "a_"}.start(t)
	second.says(t, "open")
	third := helper{UID: alice, GID: group, Dir: dir, Queue: "a_", Timeout: 100 * time.Millisecond}.start(t)
	third.says(t, "open")
	if line := third.says(t, "error: "); !strings.Contains(line, ErrTimeout.Error()) {
		t.Errorf("%s", line)
	}
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	second.says(t, "inside")
	second.leave(t)
}

// Bug: a directory was opened to a group while a process worked there. That process's
// files stayed closed to the group, as did the guard for good, even after a restart. Later,
// they were opened to the group that they had before.
func TestDirectoryOpenedToGroup(t *testing.T) {
	needRoot(t)
	dir := dirOf(t, 0, 0o700)
	first := helper{Dir: dir, Queue: "a_"}.start(t)
	first.says(t, "open")
	first.says(t, "inside")
	if err := errors.Join(os.Chown(dir, 0, group), os.Chmod(dir, 0o770|os.ModeSetgid)); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the files are open to the group", func() bool { return openToGroup(t, dir) })
	second := helper{UID: bob, GID: group, Dir: dir, Queue: "a_", Timeout: patience}.start(t)
	second.says(t, "open")
	first.leave(t)
	second.says(t, "inside")
	second.leave(t)

	if err := os.Chmod(filepath.Join(dir, guardFile), 0o600); err != nil {
		t.Fatal(err)
	}
	helper{Dir: dir, Queue: "a_"}.start(t).says(t, "open")
	wait.Until(t, "the guard is open to the group again", func() bool { return openToGroup(t, dir) })
}

// openToGroup reports whether the group may read and write all files of a directory.
func openToGroup(t testing.TB, dir string) bool {
	t.Helper()
	names := filesOf(t, dir)
	for _, name := range names {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(dir, name), &st); err == nil && (st.Mode&0o060 != 0o060 || st.Gid != group) {
			return false
		}
	}
	return len(names) > 0
}

// Bug: only the guard's user could keep it from looking old, and read the file system's
// clock from it. Users who share it through a group could not.
func TestTouchOfSharedFile(t *testing.T) {
	needRoot(t)
	path := plant(t, alice, "", dirOf(t, group, 0o770|os.ModeSetgid), guardFile)
	old := time.Now().Add(-time.Hour)
	if err := errors.Join(os.Chmod(path, 0o666), os.Chtimes(path, old, old)); err != nil {
		t.Fatal(err)
	}
	guard, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer guard.Close()
	asUser(t, bob, func() { touchFile(int(guard.Fd())) })
	st, err := guard.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if age := time.Since(st.ModTime()); age > time.Minute {
		t.Errorf("the file is still %v old", age.Round(time.Second))
	}
}

// asUser does something with the rights that a user has to files.
func asUser(t testing.TB, uid int, do func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := syscall.Setfsuid(uid); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Setfsuid(os.Geteuid()) }()
	do()
}

// Bug: if root paused a queue in a directory that everybody may write to, before
// anybody used it, the pause applied to no user. A pause that another user had made
// before its process ran was not in root's lists, and root could not end it.
func TestPauseInPublicDirectoryBeforeStart(t *testing.T) {
	dir := publicDir(t)
	pausedForAlice := func(paused bool) {
		t.Helper()
		p := helper{UID: alice, GID: alice, Dir: dir, Queue: "a_", Timeout: 100 * time.Millisecond}.start(t)
		p.says(t, "open")
		if paused {
			p.says(t, "error: ")
			return
		}
		p.says(t, "inside")
		p.leave(t)
	}
	if err := PauseQueue(dir, "a_", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if q := pausedIn(t, dir, "a_"); q.PausedUntil == nil {
		t.Error("the pause is not in the list")
	}
	pausedForAlice(true)
	// Bug: a pause that alice cannot end was reported as resumed.
	p := helper{UID: alice, GID: alice, Dir: dir, Queue: "a_", Resume: true}.start(t)
	p.says(t, "open")
	for _, way := range []string{"by the engine", "from outside"} {
		if line := <-p.lines; !strings.Contains(line, ErrOthersPause.Error()) || !strings.Contains(line, "root") {
			t.Errorf("%s, resuming root's pause says %q", way, line)
		}
	}
	pausedForAlice(true)
	if err := ResumeQueue(dir, "a_"); err != nil {
		t.Fatal(err)
	}
	pausedForAlice(false)

	elsewhere := publicDir(t)
	dir = elsewhere
	plant(t, alice, "", dir, pauseName("a_", time.Now().Add(time.Hour)))
	if q := pausedIn(t, dir, "a_"); q.PausedUntil == nil {
		t.Error("another user's pause is not in root's list")
	}
	pausedForAlice(true)
	if err := ResumeQueue(dir, "a_"); err != nil {
		t.Fatal(err)
	}
	pausedForAlice(false)

	// Once alice uses the directory, she can end root's pause.
	if err := PauseQueue(dir, "a_", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	for _, name := range filesOf(t, dir) {
		if info, err := os.Lstat(filepath.Join(dir, name)); err == nil && strings.HasPrefix(name, pauseFiles) && info.Sys().(*syscall.Stat_t).Uid != alice {
			t.Errorf("%s is of user %d", name, info.Sys().(*syscall.Stat_t).Uid)
		}
	}
}

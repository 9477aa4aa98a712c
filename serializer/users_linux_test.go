package serializer

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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

// In a directory that everybody may write to, an engine serves one user; another
// is told so.
func TestPublicDirectoryServesOneUser(t *testing.T) {
	dir := publicDir(t)
	first := helper{UID: alice, GID: alice, Dir: dir, Queue: "a_"}.start(t)
	first.says(t, "open")
	first.says(t, "inside")
	second := helper{UID: alice, GID: alice, Dir: dir, Queue: "a_", Timeout: 50 * time.Millisecond}.start(t)
	second.says(t, "open")
	if line := second.says(t, "error: "); !strings.Contains(line, ErrTimeout.Error()) {
		t.Errorf("the second of the same user: %s", line)
	}
	other := helper{UID: bob, GID: bob, Dir: dir, Queue: "a_"}.start(t)
	if line := other.says(t, "error: "); !strings.Contains(line, filepath.Join(dir, guardFile)) {
		t.Errorf("another user: %s", line)
	}
}

// Whatever another user puts there has no say: tickets, owner files, markers.
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

// Root's files count: root may do anything anyway.
func TestPublicDirectoryHeedsRoot(t *testing.T) {
	dir := publicDir(t)
	plant(t, 0, "", dir, Ticket{Prefix: "a_", Stamp: minStamp}.Name())
	p := helper{UID: alice, GID: alice, Dir: dir, Queue: "a_", Timeout: 300 * time.Millisecond}.start(t)
	p.says(t, "open")
	if line := p.says(t, "error: "); !strings.Contains(line, ErrTimeout.Error()) {
		t.Errorf("%s", line)
	}
}

// What is planted in the guard's place is refused, and nothing is written
// through it.
func TestPlantedGuard(t *testing.T) {
	for name, plantIt := range map[string]func(t *testing.T, dir, victim string) error{
		"symbolic link": func(t *testing.T, dir, victim string) error { return os.Symlink(victim, filepath.Join(dir, guardFile)) },
		"dangling symbolic link": func(t *testing.T, dir, victim string) error {
			return os.Symlink(victim+".new", filepath.Join(dir, guardFile))
		},
		"hard link": func(t *testing.T, dir, victim string) error { return os.Link(victim, filepath.Join(dir, guardFile)) },
		"pipe":      func(t *testing.T, dir, victim string) error { return unix.Mkfifo(filepath.Join(dir, guardFile), 0o666) },
		"directory": func(t *testing.T, dir, victim string) error { return os.Mkdir(filepath.Join(dir, guardFile), 0o777) },
		"another's file": func(t *testing.T, dir, victim string) error {
			plant(t, bob, "", dir, guardFile)
			return os.Chmod(filepath.Join(dir, guardFile), 0o666)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := publicDir(t)
			victim := plant(t, alice, "precious", dir, "victim")
			if err := plantIt(t, dir, victim); err != nil {
				t.Fatal(err)
			}
			p := helper{UID: alice, GID: alice, Dir: dir, Queue: "a_"}.start(t)
			if line := p.says(t, "error: "); !strings.Contains(line, filepath.Join(dir, guardFile)) {
				t.Errorf("%s", line)
			}
			if text, err := os.ReadFile(victim); err != nil || string(text) != "precious" {
				t.Errorf("the file behind the link: %q, %v", text, err)
			}
			if _, err := os.Lstat(victim + ".new"); err == nil {
				t.Error("a file was made through the link")
			}
		})
	}
}

// The same user's links in the place of tickets and owner files are strangers:
// they are waited for, and not followed.
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
	stays(t, next, "the link is first")
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

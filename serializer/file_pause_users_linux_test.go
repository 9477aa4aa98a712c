package serializer

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// pausesOf counts the pause files of a user.
func pausesOf(t *testing.T, dir string, uid int) (count int) {
	t.Helper()
	for _, name := range filesOf(t, dir) {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err == nil && info.Mode().IsRegular() && strings.HasPrefix(name, pauseFiles) && info.Sys().(*syscall.Stat_t).Uid == uint32(uid) {
			count++
		}
	}
	return count
}

// Users who share a directory with the sticky bit cannot remove each other's pauses.
// Bug: a second user's pause failed and yet took effect, and its resumption did not say
// whose pause remained.
func TestPauseBesideAnotherUsers(t *testing.T) {
	needRoot(t)
	dir := dirOf(t, group, 0o770|os.ModeSetgid|os.ModeSticky)
	do := func(h helper) (said string) {
		t.Helper()
		h.Dir, h.GID, h.Queue = dir, group, "a_"
		p := h.start(t)
		p.says(t, "open")
		for line := range p.lines {
			said += line + "\n"
		}
		return said
	}
	if said := do(helper{UID: alice, Pause: true, Timeout: time.Hour}); said != "" {
		t.Fatalf("the first pause: %s", said)
	}
	if said := do(helper{UID: bob, Pause: true}); said != "" {
		t.Errorf("the second pause: %s", said)
	}
	if a, b := pausesOf(t, dir, alice), pausesOf(t, dir, bob); a != 1 || b != 1 {
		t.Errorf("pauses: %d and %d; expected one of each user", a, b)
	}
	said := do(helper{UID: bob, Resume: true})
	if strings.Count(said, ErrOthersPause.Error()) != 2 || strings.Count(said, userName(alice)) != 2 {
		t.Errorf("resuming another user's pause: %s", said)
	}
	if a, b := pausesOf(t, dir, alice), pausesOf(t, dir, bob); a != 1 || b != 0 {
		t.Errorf("pauses: %d and %d; expected the first user's", a, b)
	}
	if said := do(helper{UID: alice, Resume: true}); said != "" {
		t.Errorf("resuming the own pause: %s", said)
	}
}

// Bug: root followed a hard link with the name of a pause, a mark or an eviction
// marker. It gave away the file that the link led to.
func TestMarksFollowNoHardLinks(t *testing.T) {
	needRoot(t)
	for what, mark := range map[string]func(dir, name string) error{
		"by a pause": func(dir, name string) error { return PauseQueue(dir, "a_", time.Time{}) },
		"from outside": func(dir, name string) error {
			d, err := openOutside(dir)
			if err != nil {
				return err
			}
			defer d.close()
			return d.mark(name)
		},
		"by an engine": func(dir, name string) error {
			d, err := openLockDir(dir, time.Now)
			if err != nil {
				return err
			}
			defer d.close()
			return d.mark(name)
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir := dirOf(t, 0, 0o750)
			if err := os.Chown(dir, alice, alice); err != nil {
				t.Fatal(err)
			}
			secret := plant(t, 0, "secret", dirOf(t, 0, 0o750), "secret")
			plant(t, alice, "", dir, guardFile)
			name := pauseName("a_", Resumed)
			if err := os.Link(secret, filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
			if err := mark(dir, name); what != "by a pause" && !errors.Is(err, errTaken) {
				t.Errorf("error %v; expected that the name is taken", err)
			}
			info, err := os.Stat(secret)
			if err != nil {
				t.Fatal(err)
			}
			if st := info.Sys().(*syscall.Stat_t); st.Uid != 0 {
				t.Errorf("the file is now of user %d", st.Uid)
			}
		})
	}
}

// The pauses of several users need different names, but pauses that last until they are
// resumed have the same end. Bug: all but one seemed to end a moment earlier.
func TestPauseOfSeveralUsersUntilResumed(t *testing.T) {
	dir := publicDir(t)
	for _, user := range []int{alice, bob} {
		plant(t, user, "", dir, guardName(user))
	}
	if err := PauseQueue(dir, "a_", time.Time{}); err != nil {
		t.Fatal(err)
	}
	states, err := Inspect(dir)
	if err != nil || len(states) != 2 {
		t.Fatalf("%+v, error %v; expected a queue of each user", states, err)
	}
	for _, q := range states {
		if q.PausedUntil == nil || !q.PausedUntil.Equal(Resumed) {
			t.Errorf("paused until %v; expected %v", q.PausedUntil, Resumed)
		}
	}
}

// Bug: root paused a queue while nobody used the directory, and made the pause longer when
// a user did. Root's own pause went before the user's was there, and a waiter entered.
func TestPauseMadeLongerByRoot(t *testing.T) {
	dir := publicDir(t)
	if err := PauseQueue(dir, "a_", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	plant(t, alice, "", dir, guardName(alice))
	events, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(events)
	if _, err := unix.InotifyAddWatch(events, dir, unix.IN_CREATE|unix.IN_DELETE); err != nil {
		t.Fatal(err)
	}
	if err := PauseQueue(dir, "a_", time.Now().Add(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	n, err := unix.Read(events, buf)
	if err != nil {
		t.Fatal(err)
	}
	deleted := false
	for buf = buf[:n]; len(buf) > 0; {
		kind, size := binary.NativeEndian.Uint32(buf[4:]), binary.NativeEndian.Uint32(buf[12:])
		name := strings.TrimRight(string(buf[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+size]), "\x00")
		if strings.HasPrefix(name, pauseFiles) && kind&unix.IN_CREATE != 0 && deleted {
			t.Errorf("%s was made when the earlier pause had gone already", name)
		}
		deleted = deleted || strings.HasPrefix(name, pauseFiles) && kind&unix.IN_DELETE != 0
		buf = buf[unix.SizeofInotifyEvent+size:]
	}
	if !deleted {
		t.Error("root's pause is still there")
	}
}

// guardName is the name of a user's guard in a directory that everybody may write to.
func guardName(uid int) string { return guardFile + "-" + strconv.Itoa(uid) }

// A user who puts something in the way of a pause, or of its end, affects nobody else.
// Bug: root's command stopped there, and skipped the remaining users.
func TestPauseDespiteObstacle(t *testing.T) {
	dir := publicDir(t)
	for _, user := range []int{alice, bob} {
		plant(t, user, "", dir, guardName(user))
	}
	obstacle := filepath.Join(dir, pauseName("a_", Resumed))
	first, second := min(alice, bob), max(alice, bob)
	if err := errors.Join(os.Mkdir(obstacle, 0o700), os.Chown(obstacle, first, first)); err != nil {
		t.Fatal(err)
	}
	if err := PauseQueue(dir, "a_", time.Time{}); !errors.Is(err, errNotFile) {
		t.Errorf("pausing: error %v; expected that something is a directory", err)
	}
	if n := pausesOf(t, dir, second); n != 1 {
		t.Errorf("%d pauses of the second user; expected 1", n)
	}
	if err := ResumeQueue(dir, "a_"); !errors.Is(err, errNotFile) {
		t.Errorf("resuming: error %v; expected that something is a directory", err)
	}
	if n := pausesOf(t, dir, second); n != 0 {
		t.Errorf("%d pauses of the second user after the end; expected none", n)
	}
}

// Pauses that do not apply here, and pauses that have ended, are not logged. Bug: each
// file of another user that was gone again was logged as a pause.
func TestLogOfPausesThatDoNotCount(t *testing.T) {
	dir := publicDir(t)
	var log logBuffer
	ended := plant(t, 0, "", dir, pauseName("b_", time.Now().Add(-time.Second)))
	f, err := OpenFile(dir, FileOptions{Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	turn := get(t, started(f, arrival("a_")))
	for i := range 100 {
		file := plant(t, bob, "", dir, pauseName("a_", time.Now().Add(time.Hour+time.Duration(i)*time.Second)))
		time.Sleep(time.Millisecond) // so that it is noticed at different moments of its life
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	turn.Leave()
	wait.Until(t, "the ended pause is removed", func() bool {
		_, err := os.Stat(ended)
		return os.IsNotExist(err)
	})
	last := plant(t, 0, "", dir, pauseName("c_", time.Now().Add(time.Hour)))
	turn = get(t, started(f, arrival("a_")))
	wait.Until(t, "the last pause is logged", func() bool { return strings.Contains(log.String(), filepath.Base(last)) })
	turn.Leave()
	if n := strings.Count(log.String(), "a queue is paused"); n != 1 {
		t.Errorf("%d pauses are logged; expected the last:\n%.2000s", n, log.String())
	}
	if n := strings.Count(log.String(), "do not count here"); n > 5 {
		t.Errorf("%d lines about another user's files", n)
	}
}

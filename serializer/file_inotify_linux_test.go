package serializer

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func noChange(change, []byte) {}

// Bug: after a directory could not be listed for want of a file descriptor, the next sync
// trusted the notifications alone. It knew none of the earlier tickets, and two were
// inside at once.
func TestFailedListingIsRepeated(t *testing.T) {
	dir := t.TempDir()
	touch(t, dir, "before")
	d := openOS(t, dir)

	open := d.dir
	d.dir = -1
	if err := d.changes(noChange); err == nil {
		t.Fatal("listing without a directory did not fail")
	}
	d.dir = open

	var names []string
	complete := false
	err := d.changes(func(kind change, name []byte) {
		complete = complete || kind == listing
		names = append(names, string(name))
	})
	if err != nil || !complete || !slices.Contains(names, "before") {
		t.Errorf("after a failure: names %q, complete %v, error %v", names, complete, err)
	}
}

// Bug: remote tickets that came and went while notifications were lost remained unknown.
// So the last number was not read from the guard file, and if the clock was behind, a
// smaller one was issued.
func TestLostNotificationsKeepNumbersGrowing(t *testing.T) {
	dir := t.TempDir()
	late, err := OpenFile(dir, FileOptions{Clock: func() time.Time { return time.Now().Add(-time.Hour) }})
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	right := openFile(t, dir)
	defer right.Close()
	enter(t, late, arrival("a_")).Leave()

	late.dir.syncing.Lock()
	overflow(t, dir)
	turn := enter(t, right, arrival("a_"))
	turn.Leave()
	late.dir.syncing.Unlock()

	next := enter(t, late, arrival("a_"))
	defer next.Leave()
	if next.Token() <= turn.Token() {
		t.Errorf("token %d after %d", next.Token(), turn.Token())
	}
}

// overflow makes more changes in a directory than the queue of notifications
// holds.
func overflow(t testing.TB, dir string) {
	t.Helper()
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	if err != nil {
		t.Skip(err)
	}
	events, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || events > 1<<20 {
		t.Skipf("the queue of notifications holds %q; lower it: sysctl fs.inotify.max_queued_events=16384", text)
	}
	noise := filepath.Join(dir, "noise")
	for range events/2 + 1 {
		if err := os.Mkdir(noise, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(noise); err != nil {
			t.Fatal(err)
		}
	}
}

// Bug: the watch was set by path. If another directory was at the path for a moment, the
// engine watched that one and worked in the first.
func TestNotifierWatchesTheOpenDirectory(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	d := openOS(t, dir)
	n := newNotifier(d.dir, elsewhere)
	if n == nil {
		t.Fatal("no watch")
	}
	defer n.close()
	touch(t, dir, "here")
	touch(t, elsewhere, "there")
	var names []string
	if _, err := n.read(func(_ change, name []byte) { names = append(names, string(name)) }); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(names, "here") || slices.Contains(names, "there") {
		t.Errorf("heard of %q", names)
	}
}

// Truncated or damaged events must not crash the engine: it stops reading them.
func FuzzNotifierParse(f *testing.F) {
	f.Add(event(unix.IN_CREATE, "a_0000160969386537851500200036794192.168.0.1", 64))
	f.Add(slices.Concat(event(unix.IN_MOVED_FROM, "a", 16), event(unix.IN_DELETE, "b", 16), event(unix.IN_Q_OVERFLOW, "", 0)))
	f.Add(event(unix.IN_CLOSE_WRITE, "without an end", 14))
	f.Add([]byte("too short"))
	f.Fuzz(func(t *testing.T, events []byte) {
		n := &notifier{}
		n.parse(events, func(_ change, name []byte) {
			if slices.Contains(name, 0) {
				t.Errorf("name %q", name)
			}
		})
	})
}

func event(mask uint32, name string, size int) []byte {
	e := make([]byte, unix.SizeofInotifyEvent, unix.SizeofInotifyEvent+size)
	binary.NativeEndian.PutUint32(e[4:], mask)
	binary.NativeEndian.PutUint32(e[12:], uint32(size))
	return append(append(e, name...), make([]byte, size-len(name))...)
}

// After a long stop, a process gets an overflow and lists the directory. Its waiters must
// still enter, in order.
func TestOverflowWhileWaiting(t *testing.T) {
	dir := t.TempDir()
	one, two := openFile(t, dir), openFile(t, dir)
	defer one.Close()
	defer two.Close()
	holder := enter(t, one, arrival("a_"))
	waiting := join(t, two, arrival("a_"))
	two.dir.syncing.Lock()
	overflow(t, dir)
	holder.Leave()
	again := make(chan result, 1)
	go func() {
		turn, err := one.Enter(context.Background(), arrival("a_"))
		again <- result{turn, err}
	}()
	two.dir.syncing.Unlock()
	first := <-waiting
	if first.err != nil {
		t.Fatal(first.err)
	}
	if len(again) > 0 {
		t.Error("a later ticket went first")
	}
	first.turn.Leave()
	second := <-again
	if second.err != nil {
		t.Fatal(second.err)
	}
	second.turn.Leave()
}

// Bug: a ticket whose appearance was the last event counted as seen in the listing that
// followed. Arrivals waited for it without end.
func TestOverflowAfterTicketCame(t *testing.T) {
	dir := t.TempDir()
	one, two := openFile(t, dir), openFile(t, dir)
	defer one.Close()
	defer two.Close()
	enter(t, two, arrival("b_")).Leave()
	two.dir.syncing.Lock()
	turn := enter(t, one, arrival("a_"))
	overflow(t, dir)
	turn.Leave()
	two.dir.syncing.Unlock()
	get(t, started(two, arrival("a_"))).Leave()
}

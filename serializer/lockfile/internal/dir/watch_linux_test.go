package dir

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func makeDir(t testing.TB) *Dir {
	t.Helper()
	d, err := Make(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

func touchFile(t testing.TB, path ...string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(path...), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Bug: the watch was set by path. If another directory was at the path for a moment, the
// store watched that one and worked in the first.
func TestNotifierWatchesTheOpenDirectory(t *testing.T) {
	d, elsewhere := makeDir(t), t.TempDir()
	here := d.path
	d.path = elsewhere
	w := d.Watch()
	defer w.Close()
	if w.polls() {
		t.Fatal("no watch")
	}
	touchFile(t, here, "here")
	touchFile(t, elsewhere, "there")
	var names []string
	lost, err := w.Read(func(_ Change, name []byte) { names = append(names, string(name)) })
	if err != nil || !lost || !slices.Contains(names, "here") || slices.Contains(names, "there") {
		t.Errorf("heard of %q, lost %t, %v", names, lost, err)
	}
	if lost, err := w.Read(func(Change, []byte) {}); lost || err != nil {
		t.Errorf("the second read has lost something: %t, %v", lost, err)
	}
}

// Truncated or damaged events must not crash the store: it stops reading them.
func FuzzWatchParse(f *testing.F) {
	f.Add(event(unix.IN_CREATE, "a_0000160969386537851500200036794192.168.0.1", 64))
	f.Add(slices.Concat(event(unix.IN_MOVED_FROM, "a", 16), event(unix.IN_DELETE, "b", 16), event(unix.IN_Q_OVERFLOW, "", 0)))
	f.Add(event(unix.IN_CLOSE_WRITE, "without an end", 14))
	f.Add([]byte("too short"))
	f.Fuzz(func(t *testing.T, events []byte) {
		new(Watch).parse(events, func(_ Change, name []byte) {
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

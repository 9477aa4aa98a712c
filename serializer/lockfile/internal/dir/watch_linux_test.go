package dir

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
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

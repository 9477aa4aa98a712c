package dir

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Bug: the watch was set by path. If another directory was at the path for a moment, the
// store watched that one and worked in the first.
func TestNotifierWatchesTheOpenDirectory(t *testing.T) {
	here, elsewhere := t.TempDir(), t.TempDir()
	d, err := Make(here)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	d.path = elsewhere
	w := d.Watch()
	defer w.Close()
	if w.polls() {
		t.Fatal("no watch")
	}
	for _, file := range []string{filepath.Join(here, "here"), filepath.Join(elsewhere, "there")} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	lost, err := w.Read(func(_ Change, name []byte) { names = append(names, string(name)) })
	if err != nil || !lost || !slices.Contains(names, "here") || slices.Contains(names, "there") {
		t.Errorf("heard of %q, lost %t, %v", names, lost, err)
	}
	if lost, err := w.Read(func(Change, []byte) {}); lost || err != nil {
		t.Errorf("the second read has lost something: %t, %v", lost, err)
	}
}

package durable_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/durable"
)

// wantFile fails unless the file at path holds text and the directory has the
// names and no others.
func wantFile(t *testing.T, path, text string, names ...string) {
	t.Helper()
	if found, err := os.ReadFile(path); err != nil || string(found) != text {
		t.Errorf("%s holds %q, %v; expected %q", path, found, err, text)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, entry := range entries {
		found = append(found, entry.Name())
	}
	if !slices.Equal(found, names) {
		t.Errorf("the directory has %q; expected %q", found, names)
	}
}

// wantPrivate fails unless what is at path is of the kind, and its owner's alone.
func wantPrivate(t *testing.T, path string, kind fs.FileMode) {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode(); mode.Type() != kind || mode.Perm()&0o077 != 0 && runtime.GOOS != "windows" { // where modes do not say that
		t.Errorf("%s has mode %v", path, mode)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestReplaceFile(t *testing.T) {
	for name, before := range map[string]func(t *testing.T, path string){
		"no file before": func(*testing.T, string) {},
		"a file before": func(t *testing.T, path string) {
			write(t, path, "a longer text than the next")
			if err := os.Chmod(path, 0o644); err != nil {
				t.Fatal(err)
			}
		},
		"left by a process that died while it wrote": func(t *testing.T, path string) {
			write(t, path, "one")
			write(t, path+".tmp", "half of a number, and more of it than the next has")
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "number")
			before(t, path)
			for _, text := range []string{"two", "", "three\n"} {
				if err := durable.ReplaceFile(path, text); err != nil {
					t.Fatal(err)
				}
				wantFile(t, path, text, "number")
				wantPrivate(t, path, 0)
			}
		})
	}
}

func TestMakeDirs(t *testing.T) {
	root := t.TempDir()
	deep := filepath.Join(root, "a", "b", "c")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 2 {
				if err := durable.MakeDirs(deep, 0o700); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	for dir := deep; dir != root; dir = filepath.Dir(dir) {
		wantPrivate(t, dir, fs.ModeDir)
	}
	file := filepath.Join(deep, "file")
	write(t, file, "text")
	for _, path := range []string{file, filepath.Join(file, "below")} {
		if err := durable.MakeDirs(path, 0o700); err == nil {
			t.Errorf("made a directory at %s, where a file is in the way", path)
		}
	}
	wantFile(t, file, "text", "file")
}

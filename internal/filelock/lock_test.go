package filelock

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Which locks exclude each other, tested with two open files of one process.
func TestModes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	for _, test := range []struct {
		first, second Mode
		together      bool
	}{
		{Exclusive, Exclusive, false},
		{Exclusive, Shared, false},
		{Shared, Exclusive, false},
		{Shared, Shared, true},
	} {
		first, second := open(t, path), open(t, path)
		if err := Wait(first.Fd(), test.first); err != nil {
			t.Fatal(err)
		}
		if locked, err := Try(second.Fd(), test.second); err != nil || locked != test.together {
			t.Errorf("mode %d after mode %d: %v, %v; expected %v", test.second, test.first, locked, err, test.together)
		}
		if err := Unlock(first.Fd()); err != nil {
			t.Fatal(err)
		}
		if locked, err := Try(second.Fd(), test.second); err != nil || !locked {
			t.Errorf("mode %d once mode %d is unlocked: %v, %v; expected the lock", test.second, test.first, locked, err)
		}
		if err := errors.Join(first.Close(), second.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

func open(t *testing.T, path string) *os.File {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// Bug: root followed a link that the directory's owner had put there, and made its target.
func TestLinkIsNotFollowed(t *testing.T) {
	dir := t.TempDir()
	target, path := filepath.Join(dir, "nologin"), filepath.Join(dir, "lock")
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
	if file, err := Lock(t.Context(), path); err == nil {
		t.Error("locked " + file.Name())
	}
	if _, err := os.Stat(target); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the target of the link: %v", err)
	}
}

//go:build unix && !aix && !solaris

package filelock

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Which locks exclude each other, tested with two open files of one process.
func TestModes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	waitShared := func(fd uintptr) error { return flock(fd, unix.LOCK_SH) }
	for _, test := range []struct {
		name     string
		first    func(fd uintptr) error
		second   func(fd uintptr) (bool, error)
		together bool
	}{
		{"exclusive, exclusive", Wait, Try, false},
		{"exclusive, shared", Wait, TryShared, false},
		{"shared, exclusive", waitShared, Try, false},
		{"shared, shared", waitShared, TryShared, true},
	} {
		first, second := open(t, path), open(t, path)
		if err := test.first(first.Fd()); err != nil {
			t.Fatal(err)
		}
		if locked, err := test.second(second.Fd()); err != nil || locked != test.together {
			t.Errorf("%s: %v, %v; expected %v", test.name, locked, err, test.together)
		}
		if err := Unlock(first.Fd()); err != nil {
			t.Fatal(err)
		}
		if locked, err := test.second(second.Fd()); err != nil || !locked {
			t.Errorf("%s, once the first is unlocked: %v, %v; expected the lock", test.name, locked, err)
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

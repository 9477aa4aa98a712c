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
	for _, test := range []struct {
		first    int
		second   func(fd uintptr) (bool, error)
		together bool
	}{
		{unix.LOCK_EX, Try, false},
		{unix.LOCK_EX, TryShared, false},
		{unix.LOCK_SH, Try, false},
		{unix.LOCK_SH, TryShared, true},
	} {
		first, err1 := os.Create(path)
		second, err2 := os.Open(path)
		if err := errors.Join(err1, err2, flock(first.Fd(), test.first)); err != nil {
			t.Fatal(err)
		}
		if locked, err := test.second(second.Fd()); err != nil || locked != test.together {
			t.Errorf("%+v: %v, %v", test, locked, err)
		}
		err := Unlock(first.Fd())
		if locked, failed := test.second(second.Fd()); err != nil || failed != nil || !locked {
			t.Errorf("%+v, once the first is unlocked: %v, %v, %v; expected the lock", test, locked, err, failed)
		}
		if err := errors.Join(first.Close(), second.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

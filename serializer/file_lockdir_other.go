//go:build !windows && (!unix || aix || solaris)

package serializer

import (
	"errors"
	"runtime"
	"time"
)

// errNoLockDir is the error on systems without a tested lock that belongs to an open file
// and ends with its process. Nothing is promised there.
var errNoLockDir = errors.New("lock files do not work on " + runtime.GOOS + "; use the memory engine for one process, or the etcd engine")

// outsideDir is what other systems use for a lock directory seen from outside.
type outsideDir struct {
	lockDir
	path string
}

func openLockDir(path string, _ func() time.Time) (lockDir, error) {
	return nil, &StorageError{"opening lock directory", path, errNoLockDir}
}

func tryLockDir(path string) error {
	return &StorageError{"using lock directory", path, errNoLockDir}
}

func openOutside(path string) (*outsideDir, error) {
	return nil, &StorageError{"opening lock directory", path, errNoLockDir}
}

func (*outsideDir) list() ([]string, error) { return nil, errNoLockDir }

func (d *outsideDir) byUser() ([]*outsideDir, error) { return nil, errNoLockDir }

func (d *outsideDir) own() *outsideDir { return d }

func (*outsideDir) whose(string) (fileID, string, error) { return fileID{}, "", errNoLockDir }

func (*outsideDir) mayMark() bool { return false }

func (d *outsideDir) mayRemove(string) bool { return false }

func (d *outsideDir) pauses(string) bool { return false }

func (d *outsideDir) onlyLooks([]*outsideDir) bool { return false }

func ofRoot(string) bool { return false }

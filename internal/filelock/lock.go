package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/fileowner"
)

// Poll is how often a lock that another process holds is tried again.
const Poll = 2 * time.Millisecond

// Lock waits for the exclusive lock of the file at path, as long as the context
// allows, and makes the file if it is missing. Closing the file gives the lock
// back. The file must stay where it is: nobody needs to remove it.
//
// The error wraps [errors.ErrUnsupported] where the system or the file system
// has no such locks.
func Lock(ctx context.Context, path string) (*os.File, error) {
	ticker := time.NewTicker(Poll)
	defer ticker.Stop()
	for {
		file, err := tryPath(path)
		if err != nil || file != nil {
			return file, err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// tryPath is the locked file, or nil if another process has the lock. A file
// that is not the one at its path any more, because somebody has removed it,
// keeps nobody out and does not count.
func tryPath(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	// A lock that root has made would lock the directory's owner out for good.
	fileowner.Give(file, path, filepath.Dir(path))
	locked, err := Try(file.Fd(), Exclusive)
	if err != nil {
		err = fmt.Errorf("locking %s: %w", path, err)
	} else if locked && isAt(file, path) {
		return file, nil
	}
	return nil, errors.Join(err, file.Close())
}

func isAt(file *os.File, path string) bool {
	opened, err := file.Stat()
	if err != nil {
		return false
	}
	found, err := os.Stat(path)
	return err == nil && os.SameFile(opened, found)
}

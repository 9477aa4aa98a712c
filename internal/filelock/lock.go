// Package filelock locks open files with kernel locks. The kernel releases a lock when
// its process ends, for whatever reason.
//
// A lock belongs to an open file, not to a process: it also excludes other open files of
// the same process. Closing the file releases the lock. A lock only excludes other locks.
// A program that does not ask for a lock can read and write the file.
//
// [Lock] opens the file itself. The other functions take the result of [os.File.Fd]: the
// descriptor of an open file, or its handle on Windows. They return the bare error of the
// system, because the caller knows the path. If there are no such locks, the error wraps
// [errors.ErrUnsupported].
//
// On Unix this is flock, on Windows LockFileEx. Solaris and AIX have no lock that belongs
// to an open file. What only lock files of queues need is there on Unix alone.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/fileowner"
)

// Poll is the time between attempts to take a lock that another process holds.
const Poll = 2 * time.Millisecond

// Lock waits for the exclusive lock of the file at path, for as long as the context
// allows. It makes the file if it is missing. Closing the file releases the lock.
// Somebody may remove the file, and then another process can lock a new one. A
// symbolic link is not followed: the directory's owner could have root make any file.
//
// The error wraps [errors.ErrUnsupported] if the system or the file system has no such
// locks.
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

// tryPath returns the locked file, or nil if another process has the lock. A file that is
// no longer at its path, because somebody has removed it, excludes nobody and does not
// count.
func tryPath(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|noFollow, 0o600)
	if err != nil {
		return nil, err
	}
	// A lock file made by root would lock out the directory's owner for good.
	fileowner.Give(file)
	locked, err := Try(file.Fd())
	if err != nil {
		err = fmt.Errorf("locking %s: %w", path, err)
	} else if locked && isAt(file, path) {
		return file, nil
	}
	return nil, errors.Join(err, file.Close())
}

// isAt reports whether an open file is the one at path.
func isAt(file *os.File, path string) bool {
	opened, openedErr := file.Stat()
	found, err := os.Stat(path)
	return openedErr == nil && err == nil && os.SameFile(opened, found)
}

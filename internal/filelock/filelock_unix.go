//go:build unix && !aix && !solaris

package filelock

import "golang.org/x/sys/unix"

const noFollow = unix.O_NOFOLLOW

// Wait waits until the open file has the exclusive lock.
func Wait(fd uintptr) error { return flock(fd, unix.LOCK_EX) }

// Try takes the exclusive lock of the open file. It returns false if the lock of another
// open file prevents that.
func Try(fd uintptr) (locked bool, err error) { return try(fd, unix.LOCK_EX) }

// TryShared is Try for a lock that only excludes exclusive locks.
func TryShared(fd uintptr) (locked bool, err error) { return try(fd, unix.LOCK_SH) }

// Unlock releases the lock of the open file.
func Unlock(fd uintptr) error { return flock(fd, unix.LOCK_UN) }

func try(fd uintptr, how int) (locked bool, err error) {
	err = flock(fd, how|unix.LOCK_NB)
	if err == unix.EWOULDBLOCK {
		return false, nil
	}
	return err == nil, err
}

// flock retries after a signal, because the runtime sends signals to preempt goroutines.
func flock(fd uintptr, how int) error {
	for {
		if err := unix.Flock(int(fd), how); err != unix.EINTR {
			return err
		}
	}
}

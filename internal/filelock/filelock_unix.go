//go:build unix && !aix && !solaris

package filelock

import "golang.org/x/sys/unix"

func (m Mode) flag() int {
	if m == Shared {
		return unix.LOCK_SH
	}
	return unix.LOCK_EX
}

// Wait waits until the open file has the lock.
func Wait(fd uintptr, mode Mode) error { return flock(fd, mode.flag()) }

// Try locks the open file, and reports false if a lock of another open file is
// in the way.
func Try(fd uintptr, mode Mode) (locked bool, err error) {
	err = flock(fd, mode.flag()|unix.LOCK_NB)
	if err == unix.EWOULDBLOCK {
		return false, nil
	}
	return err == nil, err
}

// Unlock gives the lock of the open file back.
func Unlock(fd uintptr) error { return flock(fd, unix.LOCK_UN) }

// flock goes on after a signal: the runtime sends them to preempt goroutines.
func flock(fd uintptr, how int) error {
	for {
		if err := unix.Flock(int(fd), how); err != unix.EINTR {
			return err
		}
	}
}

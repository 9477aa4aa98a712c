//go:build unix && !aix && !solaris

package filelock

import "golang.org/x/sys/unix"

const noFollow = unix.O_NOFOLLOW

func (m Mode) flag() int {
	if m == Shared {
		return unix.LOCK_SH
	}
	return unix.LOCK_EX
}

// Wait waits until the open file has the lock.
func Wait(fd uintptr, mode Mode) error { return flock(fd, mode.flag()) }

// Try locks the open file. It returns false if the lock of another open file prevents
// that.
func Try(fd uintptr, mode Mode) (locked bool, err error) {
	err = flock(fd, mode.flag()|unix.LOCK_NB)
	if err == unix.EWOULDBLOCK {
		return false, nil
	}
	return err == nil, err
}

// Unlock releases the lock of the open file.
func Unlock(fd uintptr) error { return flock(fd, unix.LOCK_UN) }

// flock retries after a signal, because the runtime sends signals to preempt goroutines.
func flock(fd uintptr, how int) error {
	for {
		if err := unix.Flock(int(fd), how); err != unix.EINTR {
			return err
		}
	}
}

package filelock

import "golang.org/x/sys/windows"

const noFollow = 0

// lockedByte is the one byte that is locked. It is far past the end of any file, because
// Windows keeps others from reading locked bytes.
func lockedByte() *windows.Overlapped { return &windows.Overlapped{OffsetHigh: 1 << 30} }

func (m Mode) flag() uint32 {
	if m == Shared {
		return 0
	}
	return windows.LOCKFILE_EXCLUSIVE_LOCK
}

// Wait waits until the open file has the lock.
func Wait(fd uintptr, mode Mode) error {
	return windows.LockFileEx(windows.Handle(fd), mode.flag(), 0, 1, 0, lockedByte())
}

// Try locks the open file. It returns false if the lock of another open file prevents
// that.
func Try(fd uintptr, mode Mode) (locked bool, err error) {
	err = windows.LockFileEx(windows.Handle(fd), mode.flag()|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, lockedByte())
	if err == windows.ERROR_LOCK_VIOLATION || err == windows.ERROR_IO_PENDING {
		return false, nil
	}
	return err == nil, err
}

// Unlock releases the lock of the open file.
func Unlock(fd uintptr) error {
	return windows.UnlockFileEx(windows.Handle(fd), 0, 1, 0, lockedByte())
}

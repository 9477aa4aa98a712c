package filelock

import "golang.org/x/sys/windows"

const noFollow = 0

// Try takes the exclusive lock of the open file. It returns false if the lock of another
// open file prevents that. It locks one byte far past the end of any file, because
// Windows keeps others from reading locked bytes.
func Try(fd uintptr) (locked bool, err error) {
	const how = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	err = windows.LockFileEx(windows.Handle(fd), how, 0, 1, 0, &windows.Overlapped{OffsetHigh: 1 << 30})
	if err == windows.ERROR_LOCK_VIOLATION || err == windows.ERROR_IO_PENDING {
		return false, nil
	}
	return err == nil, err
}

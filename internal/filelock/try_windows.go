package filelock

import (
	"errors"
	"os"
	"syscall"
	"unsafe"
)

const (
	lockfileFailImmediately = 1
	lockfileExclusiveLock   = 2
	errorLockViolation      = syscall.Errno(33)
	// lockedByte lies far behind the file's content, which other processes may
	// then still read.
	lockedByte = 1 << 30
)

var lockFileEx = syscall.NewLazyDLL("kernel32.dll").NewProc("LockFileEx")

// try locks the file for this open file alone, until it is closed. It reports
// false if another open file has the lock.
func try(file *os.File) (bool, error) {
	at := syscall.Overlapped{Offset: lockedByte}
	ok, _, err := lockFileEx.Call(file.Fd(), lockfileFailImmediately|lockfileExclusiveLock,
		0, 1, 0, uintptr(unsafe.Pointer(&at)))
	switch {
	case ok != 0:
		return true, nil
	case errors.Is(err, errorLockViolation):
		return false, nil
	default:
		return false, os.NewSyscallError("LockFileEx", err)
	}
}

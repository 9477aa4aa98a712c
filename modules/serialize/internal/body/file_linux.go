package body

import (
	"os"

	"golang.org/x/sys/unix"
)

// newFile creates a file without a name in a directory. It is gone when it is
// closed, however the process ends.
func newFile(dir string) (*os.File, error) {
	fd, err := ignoringInterrupts(func() (int, error) {
		return unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	})
	if err == nil {
		return os.NewFile(uintptr(fd), dir), nil
	}
	// Some file systems cannot do this, and report it by various errors.
	return newRemovedFile(dir)
}

func ignoringInterrupts(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); err != unix.EINTR {
			return n, err
		}
	}
}

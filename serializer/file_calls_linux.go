package serializer

import (
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A ticket's file is made and removed in every turn. So the names for that are made on
// the stack, where package unix would allocate memory for each of them.

// nameBuffer holds the name of a file as the kernel takes it: with a zero at its end.
type nameBuffer [unix.NAME_MAX + 1]byte

// set fills a buffer that is empty.
func (b *nameBuffer) set(name string) error {
	if len(name) >= len(b) {
		return unix.ENAMETOOLONG
	}
	if strings.IndexByte(name, 0) >= 0 {
		return unix.EINVAL
	}
	copy(b[:], name)
	return nil
}

// linkat gives a file of a directory a second name there.
func linkat(dir int, from, to string) error {
	var old, name nameBuffer
	if err := old.set(from); err != nil {
		return err
	}
	if err := name.set(to); err != nil {
		return err
	}
	for {
		_, _, errno := unix.Syscall6(unix.SYS_LINKAT, uintptr(dir), uintptr(unsafe.Pointer(&old)), uintptr(dir), uintptr(unsafe.Pointer(&name)), 0, 0)
		if errno != unix.EINTR {
			return errorOf(errno)
		}
	}
}

// unlinkat removes a name of a file from a directory.
func unlinkat(dir int, from string) error {
	var name nameBuffer
	if err := name.set(from); err != nil {
		return err
	}
	for {
		_, _, errno := unix.Syscall(unix.SYS_UNLINKAT, uintptr(dir), uintptr(unsafe.Pointer(&name)), 0)
		if errno != unix.EINTR {
			return errorOf(errno)
		}
	}
}

func errorOf(errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

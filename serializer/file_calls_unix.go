//go:build unix && !aix && !solaris && !linux

package serializer

import "golang.org/x/sys/unix"

// linkat gives a file of a directory a second name there.
func linkat(dir int, from, to string) error {
	for {
		if err := unix.Linkat(dir, from, dir, to, 0); err != unix.EINTR {
			return err
		}
	}
}

// unlinkat removes a name of a file from a directory.
func unlinkat(dir int, from string) error {
	for {
		if err := unix.Unlinkat(dir, from, 0); err != unix.EINTR {
			return err
		}
	}
}

//go:build unix && !linux && !aix && !solaris

package serializer

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootID is nothing: this system does not tell.
func bootID() string { return "" }

// syncData waits until a file is on the disk.
func syncData(fd int) error { return unix.Fsync(fd) }

// uptime is not known here.
func uptime() time.Duration { return 0 }

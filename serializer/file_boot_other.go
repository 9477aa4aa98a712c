//go:build unix && !linux && !aix && !solaris

package serializer

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootID is empty: this system does not provide an ID.
func bootID() string { return "" }

// syncData flushes a file to the disk.
func syncData(fd int) error { return unix.Fsync(fd) }

// uptime is unknown on this system.
func uptime() time.Duration { return 0 }

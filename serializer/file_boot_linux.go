package serializer

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// bootID identifies the current boot of the machine. It is empty if the system does not
// provide an ID.
func bootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// syncData flushes the content of a file to the disk.
func syncData(fd int) error { return unix.Fdatasync(fd) }

// uptime is how long the machine has been running.
func uptime() time.Duration {
	var since unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &since); err != nil {
		return 0
	}
	return time.Duration(since.Nano())
}

package lease

import (
	"time"

	"golang.org/x/sys/unix"
)

// Uptime is a clock that nobody can set and that advances while the machine is suspended.
// Go's monotonic clock does not advance then, but leases do.
func Uptime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic(err) // every Linux that Go supports has this clock
	}
	return time.Duration(now.Nano())
}

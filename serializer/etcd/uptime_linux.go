package etcd

import (
	"time"

	"golang.org/x/sys/unix"
)

// uptime is a clock that nobody sets and that goes on while the machine is
// suspended. Go's own monotonic clock stands still then, and leases do not.
func uptime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic(err) // every Linux that Go supports has this clock
	}
	return time.Duration(now.Nano())
}

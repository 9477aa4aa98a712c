//go:build !linux

package etcd

import "time"

var started = time.Now()

// uptime is a clock that nobody sets. Whether it goes on while the machine is
// suspended is up to the system.
func uptime() time.Duration { return time.Since(started) }

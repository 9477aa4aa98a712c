//go:build !linux

package etcd

import "time"

var started = time.Now()

// uptime is a clock that nobody can set. Whether it advances while the machine is
// suspended depends on the system.
func uptime() time.Duration { return time.Since(started) }

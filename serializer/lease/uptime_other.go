//go:build !linux

package lease

import "time"

var started = time.Now()

// Uptime is a clock that nobody can set. Whether it advances while the machine is
// suspended depends on the system.
func Uptime() time.Duration { return time.Since(started) }

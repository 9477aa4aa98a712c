//go:build !windows

package uniqueid

import "time"

// systemTick is the longest time between two advances of the system's clock: less than a
// microsecond.
const systemTick time.Duration = 0

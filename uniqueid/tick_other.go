//go:build !windows

package uniqueid

import "time"

// systemTick is how long the system's clock may stand still between two ticks:
// less than a microsecond.
const systemTick time.Duration = 0

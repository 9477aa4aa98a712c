package uniqueid

import "time"

// systemTick is the longest time between two advances of the system's clock.
const systemTick = 16 * time.Millisecond

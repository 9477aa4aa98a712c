package uniqueid

import "time"

// systemTick is how long the system's clock may stand still between two ticks.
const systemTick = 16 * time.Millisecond

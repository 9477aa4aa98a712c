//go:build unix && !linux

package integration_test

import "time"

// awaitOneListener waits for a moment, for the system tells nothing.
func (c *caddy) awaitOneListener() { time.Sleep(200 * time.Millisecond) }

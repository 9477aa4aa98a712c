//go:build unix && !linux

package integration_test

import (
	"syscall"
	"time"
)

func endWithTest() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

// awaitOneListener waits for a moment, for the system tells nothing.
func (c *caddy) awaitOneListener() { time.Sleep(200 * time.Millisecond) }

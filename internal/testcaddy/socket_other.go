//go:build !linux

package testcaddy

import (
	"testing"
	"time"
)

// AwaitOneListener waits for a moment, for the system tells nothing.
func AwaitOneListener(testing.TB, string) { time.Sleep(200 * time.Millisecond) }

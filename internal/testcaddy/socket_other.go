//go:build !linux

package testcaddy

import (
	"testing"
	"time"
)

// AwaitOneListener waits for a moment, because this system does not list its sockets.
func AwaitOneListener(testing.TB, string) { time.Sleep(200 * time.Millisecond) }

//go:build !linux

package testcaddy

import (
	"os/exec"
	"testing"
	"time"
)

// endWithTest does nothing: this system has no such feature.
func endWithTest(*exec.Cmd) {}

// AwaitOneListener waits for a moment, because this system does not list its sockets.
func AwaitOneListener(testing.TB, string) { time.Sleep(200 * time.Millisecond) }

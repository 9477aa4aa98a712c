package testcaddy

import (
	"os/exec"
	"testing"
	"time"
)

// DaemonProcess is another program that a test has started.
type DaemonProcess struct {
	out  lockedBuffer
	done chan struct{}
}

// Daemon runs a program until the end of the test.
func Daemon(t testing.TB, program string, args ...string) *DaemonProcess {
	t.Helper()
	d := &DaemonProcess{done: make(chan struct{})}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Stdout, cmd.Stderr = &d.out, &d.out
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting %s: %v", program, err)
	}
	go func() {
		defer close(d.done)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-d.done
	})
	return d
}

// Ended reports whether the program is no longer running.
func (d *DaemonProcess) Ended() bool {
	select {
	case <-d.done:
		return true
	default:
		return false
	}
}

// Output is what the program has printed.
func (d *DaemonProcess) Output() string { return d.out.String() }

// Age is how many seconds ago t was.
func Age(t time.Time) float64 { return time.Since(t).Seconds() }

// Package testprocess runs programs for tests, until the test ends.
package testprocess

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// Process is a program that a test has started.
type Process struct {
	PID   int
	Log   *Log          // its output
	Ended chan struct{} // closed when it has ended
	Err   error         // how it has ended

	t   testing.TB
	cmd *exec.Cmd
}

// Find looks for a program, also where Debian has those of administrators, some with their versions in their
// names. It returns "" if the program is missing.
func Find(program string) string {
	if path, err := exec.LookPath(program); err == nil {
		return path
	}
	for _, pattern := range []string{"/usr/sbin/" + program, "/usr/sbin/" + program + "[0-9]*"} {
		found, _ := filepath.Glob(pattern)
		for _, file := range slices.Backward(found) {
			if path, err := exec.LookPath(file); err == nil { // else it may not be run
				return path
			}
		}
	}
	return ""
}

// FreeAddr returns an address of this machine that is for one server until the end of the tests.
// Nothing listens there at the moment, and other tests' processes do not get it.
func FreeAddr(t testing.TB) string {
	t.Helper()
	addr, err := reserve()
	if err != nil {
		t.Fatalf("looking for a free port: %v", err)
	}
	return addr
}

// Must ends a test that cannot go on.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Start runs a command until the end of the test. If the system supports it, the command ends even if
// the test is killed. Data races that it reports fail the test.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{Log: new(Log), Ended: make(chan struct{}), t: t, cmd: cmd}
	cmd.Stdout, cmd.Stderr = p.Log, p.Log
	cmd.WaitDelay = time.Second
	endWithTest(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting %s: %v", cmd.Path, err)
	}
	p.PID = cmd.Process.Pid
	go func() {
		defer close(p.Ended)
		p.Err = cmd.Wait()
	}()
	t.Cleanup(p.end)
	return p
}

// end kills the process if it still runs, and checks its log.
func (p *Process) end() {
	p.Kill()
	const most = 16 << 10 // enough to see why
	log := p.Log.String()
	if strings.Contains(log, "WARNING: DATA RACE") {
		p.t.Errorf("a data race in process %d:\n%s", p.PID, log)
	} else if p.t.Failed() {
		p.t.Logf("log of process %d:\n%s", p.PID, log[max(0, len(log)-most):])
	}
}

// Kill ends the process at once, and waits until it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // the process may have ended
	<-p.Ended
}

// Signal sends a signal to the process.
func (p *Process) Signal(sig os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatalf("sending %v to process %d: %v", sig, p.PID, err)
	}
}

// End ends the process by a signal, if it still runs, and waits for that. A server that can handle the
// signal leaves no children behind.
func (p *Process) End(sig os.Signal) {
	p.t.Helper()
	_ = p.cmd.Process.Signal(sig) // it may have ended
	p.AwaitEnd()
}

// AwaitEnd waits for the process to end by itself.
func (p *Process) AwaitEnd() {
	p.t.Helper()
	select {
	case <-p.Ended:
	case <-time.After(wait.Patience):
		p.t.Fatalf("process %d has not ended", p.PID)
	}
}

// AwaitText waits until the process has written a text.
func (p *Process) AwaitText(text string) {
	p.t.Helper()
	wait.Until(p.t, fmt.Sprintf("process %d has written %q", p.PID, text), func() bool {
		if strings.Contains(p.Log.String(), text) {
			return true
		}
		p.WantRunning()
		return false
	})
}

// WantRunning fails the test if the process has ended.
func (p *Process) WantRunning() {
	p.t.Helper()
	select {
	case <-p.Ended:
		p.t.Fatalf("process %d has ended: %v", p.PID, p.Err)
	default:
	}
}

// LongestStall watches for times in which nothing in this process runs, until the result is called.
// That returns the longest of them.
func LongestStall() (end func() time.Duration) {
	const tick = 10 * time.Millisecond
	over, longest := make(chan struct{}), make(chan time.Duration)
	go func() {
		for stall := time.Duration(0); ; {
			before := time.Now()
			select {
			case <-over:
				longest <- stall
				return
			case <-time.After(tick):
				stall = max(stall, time.Since(before)-tick)
			}
		}
	}()
	return func() time.Duration {
		close(over)
		return <-longest
	}
}

// Log collects what others write, such as a process, while a test reads it. The zero value is empty.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements [io.Writer].
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns all that was written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Entry is one line of a log in JSON.
type Entry map[string]any

// Text returns a field of the entry, or "" if the field is missing or not a string.
func (e Entry) Text(field string) string {
	text, _ := e[field].(string)
	return text
}

// All returns the entries that satisfy wanted. Lines that are not JSON are ignored.
func (l *Log) All(wanted func(Entry) bool) (found []Entry) {
	for line := range strings.Lines(l.String()) {
		var e Entry
		if json.Unmarshal([]byte(line), &e) == nil && wanted(e) {
			found = append(found, e)
		}
	}
	return found
}

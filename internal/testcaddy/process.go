package testcaddy

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// Process is a program that a test has started: a Caddy, or another one.
type Process struct {
	PID   int
	Log   *Log          // its output
	Ended chan struct{} // closed when it has ended
	Err   error         // how it has ended

	t   testing.TB
	cmd *exec.Cmd
}

// StartProcess runs a command until the end of the test. If the system supports it, the
// command ends even if the test is killed. Data races that it reports fail the test.
func StartProcess(t testing.TB, cmd *exec.Cmd) *Process {
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
		p.wantRunning()
		return false
	})
}

// wantRunning fails the test if the process has ended.
func (p *Process) wantRunning() {
	p.t.Helper()
	select {
	case <-p.Ended:
		p.t.Fatalf("process %d has ended: %v", p.PID, p.Err)
	default:
	}
}

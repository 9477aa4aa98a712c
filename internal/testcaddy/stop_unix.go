//go:build unix

package testcaddy

import "syscall"

// Stop stops the process without ending it, as a frozen container is stopped.
func (p *Process) Stop() {
	p.t.Helper()
	p.Signal(syscall.SIGSTOP)
}

// Continue lets a stopped process go on.
func (p *Process) Continue() {
	p.t.Helper()
	p.Signal(syscall.SIGCONT)
}

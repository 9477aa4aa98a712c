//go:build unix

package testcaddy

import "syscall"

// Stop suspends the process, as a frozen container is suspended.
func (p *Process) Stop() {
	p.t.Helper()
	p.Signal(syscall.SIGSTOP)
}

// Continue resumes a suspended process.
func (p *Process) Continue() {
	p.t.Helper()
	p.Signal(syscall.SIGCONT)
}

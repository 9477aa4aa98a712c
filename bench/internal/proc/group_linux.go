package proc

import "syscall"

// attributes put a program into a group of its own, and have the kernel end it
// should we be killed.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// signal sends a signal to a program and all that it started.
func signal(pid int, s syscall.Signal) { _ = syscall.Kill(-pid, s) }

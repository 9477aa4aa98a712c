package testprocess

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// endWithTest makes a process end with the test, however the test ends.
func endWithTest(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}

// Freeze stops the process and its children, until Thaw.
func (p *Process) Freeze() { p.signalAll(syscall.SIGSTOP) }

// Thaw lets a frozen process and its children continue.
func (p *Process) Thaw() { p.signalAll(syscall.SIGCONT) }

func (p *Process) signalAll(sig syscall.Signal) {
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", p.PID))
	for child := range strings.FieldsSeq(string(children)) {
		if pid, err := strconv.Atoi(child); err == nil {
			_ = syscall.Kill(pid, sig) // it may have ended
		}
	}
	_ = p.cmd.Process.Signal(sig)
}

// reserve binds a socket to an address, and never closes it. As the socket does not listen, a server can still
// do so, as often as it starts: all servers set the option, too. Nobody else is given the port.
func reserve() (addr string, err error) {
	s, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	option := syscall.SetsockoptInt(s, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	bound := syscall.Bind(s, new(syscall.SockaddrInet4)) // of all addresses, as Caddy's servers listen
	name, err := syscall.Getsockname(s)
	if err = errors.Join(option, bound, err); err != nil {
		return "", err
	}
	return fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port), nil
}

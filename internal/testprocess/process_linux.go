package testprocess

import (
	"os/exec"
	"syscall"
)

// endWithTest makes a process end with the test, however the test ends.
func endWithTest(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}

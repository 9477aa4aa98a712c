package testcaddy

import (
	"os/exec"
	"syscall"
)

// endWithTest lets a process end with the test, however that ends.
func endWithTest(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}

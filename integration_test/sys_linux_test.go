package integration_test

import "syscall"

// endWithTest lets a process end with the test, however that ends.
func endWithTest() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

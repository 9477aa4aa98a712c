//go:build unix && !linux

package integration_test

import "syscall"

func endWithTest() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

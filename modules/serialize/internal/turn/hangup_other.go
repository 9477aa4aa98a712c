//go:build !linux && !freebsd

package turn

import "syscall"

// hungUp reports nothing: only Linux and FreeBSD tell it before everything is read.
func hungUp(syscall.RawConn) bool { return false }

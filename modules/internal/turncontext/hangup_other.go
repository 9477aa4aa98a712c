//go:build !linux && !freebsd

package turncontext

import "syscall"

// hungUp reports nothing: only Linux and FreeBSD know it before everything is read.
func hungUp(syscall.RawConn) bool { return false }

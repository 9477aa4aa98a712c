//go:build !(linux || darwin || dragonfly || freebsd || netbsd || openbsd)

package turn

import "syscall"

// hungUp reports nothing: nothing tells it before everything is read.
func hungUp(syscall.RawConn) bool { return false }

//go:build !linux

package connection

import "syscall"

// canSeeHangUp says whether this system can detect that a socket was closed while it
// still has unread data.
const canSeeHangUp = false

func hungUp(syscall.RawConn) bool { return false }

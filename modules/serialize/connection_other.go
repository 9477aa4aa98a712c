//go:build !linux

package serialize

import "syscall"

// canSeeHangUp says whether a system tells that a socket was closed while there
// is still something to read from it.
const canSeeHangUp = false

func hungUp(syscall.RawConn) bool { return false }

//go:build !linux

package orderly

import "syscall"

// canSeeHangUp says whether a system tells that a socket was closed while there
// is still something to read from it.
const canSeeHangUp = false

func hungUp(syscall.RawConn) bool { return false }

package serialize

import (
	"net"
	"syscall"
)

// halfClosed returns nil: a socket cannot be had for a second time here.
func halfClosed(syscall.RawConn) net.Conn { return nil }

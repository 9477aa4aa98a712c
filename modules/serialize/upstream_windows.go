package serialize

import (
	"net"
	"syscall"
)

// duplicate returns nil: a socket cannot be had for a second time here.
func duplicate(syscall.RawConn) net.Conn { return nil }

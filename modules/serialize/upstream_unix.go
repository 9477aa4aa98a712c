//go:build unix

package serialize

import (
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// halfClosed closes the sending half of a socket, and returns a connection that
// keeps the other half open when the socket is closed; nil if that fails.
func halfClosed(socket syscall.RawConn) net.Conn {
	copied := -1
	if err := socket.Control(func(fd uintptr) {
		if c, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0); err == nil {
			copied = c
		}
	}); err != nil || copied < 0 {
		return nil
	}
	file := os.NewFile(uintptr(copied), "upstream")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil
	}
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		_ = conn.Close()
		return nil
	}
	return conn
}

//go:build unix

package connection

import (
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// duplicate returns a second connection for a socket, which keeps it open when the first
// is closed; nil if that fails.
func duplicate(socket syscall.RawConn) net.Conn {
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
	return conn
}

//go:build linux || freebsd

package turn

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// hungUp reports whether the other side of a socket sends nothing more, even if something
// from before is still to be read.
func hungUp(socket syscall.RawConn) (gone bool) {
	err := socket.Control(func(fd uintptr) {
		sockets := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		_, err := unix.Poll(sockets, 0)
		gone = err == nil && sockets[0].Revents != 0
	})
	return err == nil && gone
}

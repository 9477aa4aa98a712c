//go:build linux || freebsd

package turncontext

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// hungUp reports whether the other side of a socket sends nothing more, even if something
// from before is still to be read.
func hungUp(socket syscall.RawConn) (gone bool) {
	_ = socket.Control(func(fd uintptr) { // an error: it is closed, and the request ends
		sockets := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		_, _ = unix.Poll(sockets, 0)
		gone = sockets[0].Revents != 0
	})
	return gone
}

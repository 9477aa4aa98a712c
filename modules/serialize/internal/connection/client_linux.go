package connection

import (
	"syscall"

	"golang.org/x/sys/unix"
)

const canSeeHangUp = true

// hungUp reports whether the peer has closed a socket or its sending half, even if
// there is unread data. net/http does not distinguish the two.
func hungUp(socket syscall.RawConn) (gone bool) {
	err := socket.Control(func(fd uintptr) {
		polled := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(polled, 0)
		gone = err == nil && n > 0 && polled[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
	})
	return gone && err == nil
}

//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package turn

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// hungUp is as on Linux. There, poll tells it only when everything is read; kqueue tells it
// before.
func hungUp(socket syscall.RawConn) (gone bool) {
	queue, err := unix.Kqueue()
	if err != nil {
		return false // too many files are open: it looks again later
	}
	defer unix.Close(queue)
	_ = socket.Control(func(fd uintptr) { // an error: it is closed, and the request ends
		events := make([]unix.Kevent_t, 1)
		unix.SetKevent(&events[0], int(fd), unix.EVFILT_READ, unix.EV_ADD)
		n, _ := unix.Kevent(queue, events, events, new(unix.Timespec))
		gone = n == 1 && events[0].Flags&unix.EV_EOF != 0
	})
	return gone
}

package dir

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Watch reads the changes in a directory from the kernel.
//
// It uses inotify directly instead of a library. The store must know that it has seen
// every event up to a certain moment. A read that returns no more events proves that.
// Events that arrive through a channel from another goroutine do not.
type Watch struct {
	fd   int // -1 if the system had no watch left: then the directory is polled
	buf  []byte
	lost bool // events were lost, so the directory must be listed

	// A wait happens in the runtime's poller. A blocking system call would occupy one of the
	// runtime's processors for a while, and delay the goroutine that was just admitted. But
	// the poller must not see fd itself: each local ticket makes an event, too, and would
	// wake a thread even if nobody waits. So an epoll set stands between the two, and has fd
	// only during a wait.
	set  *os.File
	conn syscall.RawConn
}

const notifyMask = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ONLYDIR

// Watch watches the directory. The first read of the watch reports a loss. It avoids the
// path, because another directory may have taken the place of the open one.
func (d *Dir) Watch() *Watch {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err == nil {
		_, err = unix.InotifyAddWatch(fd, "/proc/self/fd/"+strconv.Itoa(d.fd), notifyMask)
	}
	set, setErr := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	w := &Watch{fd: fd, buf: make([]byte, 32<<10), lost: true}
	if err = cmp.Or(err, setErr, unix.SetNonblock(set, true)); err == nil { // makes os.File use the poller
		w.set = os.NewFile(uintptr(set), "watch")
		w.conn, err = w.set.SyscallConn()
	}
	if err != nil {
		_, _ = unix.Close(fd), unix.Close(set)
		w.fd = -1
	}
	return w
}

func (w *Watch) polls() bool { return w.fd < 0 }

const maxEvent = unix.SizeofInotifyEvent + unix.NAME_MAX + 1

// Read reports the changes since the last call. lost means that some were lost and the
// directory must be listed. The name is valid only during the call of fn.
func (w *Watch) Read(fn func(c Change, name []byte)) (lost bool, err error) {
	for more := !w.polls(); more; {
		size, err := unix.Read(w.fd, w.buf)
		if err != nil && err != unix.EAGAIN {
			return true, err
		}
		// A read returns as many events as fit. If there was room for another one, there
		// were no more.
		more = size > len(w.buf)-maxEvent
		w.parse(w.buf[:max(size, 0)], fn)
	}
	lost, w.lost = w.lost, w.polls()
	return lost, nil
}

func (w *Watch) parse(events []byte, fn func(Change, []byte)) {
	for len(events) >= unix.SizeofInotifyEvent {
		mask := binary.NativeEndian.Uint32(events[4:])
		size := int(binary.NativeEndian.Uint32(events[12:]))
		name := events[unix.SizeofInotifyEvent:][:size]
		events = events[unix.SizeofInotifyEvent+size:]
		if i := bytes.IndexByte(name, 0); i >= 0 {
			name = name[:i]
		}
		switch {
		case mask&unix.IN_Q_OVERFLOW != 0:
			w.Distrust()
		case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
			fn(Appeared, name)
		case mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0:
			fn(Vanished, name)
		}
	}
}

// Distrust makes the next read report a loss.
func (w *Watch) Distrust() { w.lost = true }

// Wait returns when there may be changes to read, at the latest after timeout, or when the
// watch is closed.
func (w *Watch) Wait(timeout time.Duration) {
	added := false
	if !w.polls() {
		_ = w.set.SetReadDeadline(time.Now().Add(timeout))
		_ = w.conn.Read(func(set uintptr) bool {
			if added {
				return true
			}
			// Not earlier: the runtime's poller only reports events from here on.
			added = unix.EpollCtl(int(set), unix.EPOLL_CTL_ADD, w.fd, &unix.EpollEvent{Events: unix.EPOLLIN}) == nil
			return !added
		})
		_ = w.conn.Control(func(set uintptr) { _ = unix.EpollCtl(int(set), unix.EPOLL_CTL_DEL, w.fd, nil) })
	}
	if !added {
		time.Sleep(min(timeout, pollInterval))
	}
}

// Close ends the watch.
func (w *Watch) Close() {
	if !w.polls() {
		_ = w.set.Close()
		_ = unix.Close(w.fd)
	}
}

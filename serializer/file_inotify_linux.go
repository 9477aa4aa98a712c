package serializer

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// notifier reads the changes in a directory from the kernel.
//
// It uses inotify directly instead of a library. The engine must know that it has seen
// every event up to a certain moment. A read that returns no more events proves that.
// Events that arrive through a channel from another goroutine do not.
type notifier struct {
	fd    int
	alarm *alarm
	buf   []byte
	lost  bool // events were lost, so the directory must be listed
}

const notifyMask = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_CLOSE_WRITE | unix.IN_ONLYDIR

// newNotifier watches an open directory. If the system has no watch left, it returns nil,
// and the directory is polled.
func newNotifier(dir int, path string) *notifier {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return nil
	}
	if err := watch(fd, dir, path); err != nil {
		_ = unix.Close(fd)
		return nil
	}
	alarm, err := newAlarm(fd)
	if err != nil {
		_ = unix.Close(fd)
		return nil
	}
	return &notifier{fd: fd, alarm: alarm, buf: make([]byte, 32<<10), lost: true}
}

// watch adds the watch. It avoids the path, because another directory may have taken the
// place of the open one.
func watch(fd, dir int, path string) error {
	_, err := unix.InotifyAddWatch(fd, "/proc/self/fd/"+strconv.Itoa(dir), notifyMask)
	if err == nil {
		return nil
	}
	// Without /proc, the path must do. Each ticket checks that it still leads to the open
	// directory.
	_, err = unix.InotifyAddWatch(fd, path, notifyMask)
	return err
}

const maxEvent = unix.SizeofInotifyEvent + unix.NAME_MAX + 1

// read reports the changes since the last call. lost means that events were lost and the
// directory must be listed.
func (n *notifier) read(fn func(change, []byte)) (lost bool, err error) {
	for more := true; more; {
		var size int
		size, err = unix.Read(n.fd, n.buf)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			size = 0
		case err != nil:
			n.mistrust()
			return true, err
		}
		// A read returns as many events as fit. If there was room for another one, there
		// were no more.
		more = size > len(n.buf)-maxEvent
		n.parse(n.buf[:size], fn)
	}
	lost, n.lost = n.lost, false
	return lost, nil
}

func (n *notifier) parse(events []byte, fn func(change, []byte)) {
	for len(events) >= unix.SizeofInotifyEvent {
		mask := binary.NativeEndian.Uint32(events[4:])
		size := int(binary.NativeEndian.Uint32(events[12:]))
		if size > len(events)-unix.SizeofInotifyEvent {
			n.mistrust()
			return
		}
		name := events[unix.SizeofInotifyEvent:][:size]
		events = events[unix.SizeofInotifyEvent+size:]
		if i := bytes.IndexByte(name, 0); i >= 0 {
			name = name[:i]
		}
		switch {
		case mask&unix.IN_Q_OVERFLOW != 0:
			n.lost = true
		case mask&unix.IN_ISDIR != 0:
		case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
			fn(appeared, name)
		case mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0:
			fn(vanished, name)
		case mask&unix.IN_CLOSE_WRITE != 0:
			fn(closed, name)
		}
	}
}

// mistrust makes the next read report a loss.
func (n *notifier) mistrust() { n.lost = true }

// wait returns when an event can be read, or after timeout.
func (n *notifier) wait(timeout time.Duration) { n.alarm.wait(timeout) }

// interrupt ends the wait, or the next one if there is none.
func (n *notifier) interrupt() { n.alarm.interrupt() }

func (n *notifier) close() {
	n.alarm.close()
	_ = unix.Close(n.fd)
}

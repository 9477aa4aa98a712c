package serializer

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// alarm waits in the runtime's poller until a file descriptor is readable. A blocking
// system call would occupy one of the runtime's processors for a while, and delay the
// goroutine that was just admitted.
//
// The poller must not see the descriptor itself. Each local ticket makes an event, too,
// and would wake a thread even if nobody waits. So an epoll set stands between the two.
// It reports one event each time it is armed.
type alarm struct {
	fd   int
	set  *os.File // the epoll set
	conn syscall.RawConn

	mu          sync.Mutex // held while the deadline is set
	interrupted bool       // the current wait ends, or the next one if there is none
}

const disarmed = unix.EPOLLONESHOT // without an event to report

func newAlarm(fd int) (_ *alarm, err error) {
	set, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = unix.Close(set)
		}
	}()
	if err := unix.EpollCtl(set, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: disarmed}); err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(set, true); err != nil { // makes os.File use the poller
		return nil, err
	}
	a := &alarm{fd: fd, set: os.NewFile(uintptr(set), "alarm")}
	a.conn, err = a.set.SyscallConn()
	return a, err
}

// wait returns once the descriptor can be read, at the latest after timeout.
func (a *alarm) wait(timeout time.Duration) {
	if !a.begin(timeout) {
		return
	}
	armed := false
	err := a.conn.Read(func(set uintptr) bool {
		if armed {
			return rang(int(set))
		}
		// Not earlier: the runtime's poller only reports events from here on.
		armed = a.arm(int(set), unix.EPOLLIN|unix.EPOLLONESHOT) == nil
		return !armed
	})
	switch {
	case !armed:
		time.Sleep(min(timeout, pollInterval))
	case errors.Is(err, os.ErrDeadlineExceeded):
		_ = a.conn.Control(func(set uintptr) { _ = a.arm(int(set), disarmed) })
	}
}

// begin sets the deadline of a wait. It returns false if the wait was interrupted
// beforehand.
func (a *alarm) begin(timeout time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.interrupted {
		a.interrupted = false
		return false
	}
	_ = a.set.SetReadDeadline(time.Now().Add(timeout))
	return true
}

// interrupt ends the wait, or the next one if there is none.
func (a *alarm) interrupt() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.interrupted = true
	_ = a.set.SetReadDeadline(time.Now())
}

func (a *alarm) arm(set int, events uint32) error {
	return unix.EpollCtl(set, unix.EPOLL_CTL_MOD, a.fd, &unix.EpollEvent{Events: events})
}

// rang reports whether there was an event, and takes it out of the set.
func rang(set int) bool {
	var events [1]unix.EpollEvent
	n, err := unix.EpollWait(set, events[:], 0)
	return n > 0 || err != nil && err != unix.EINTR
}

func (a *alarm) close() { _ = a.set.Close() }

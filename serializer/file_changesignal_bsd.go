//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package serializer

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// kqueueSignal is a kqueue that watches the directory itself: adding or removing an entry
// is a write to it. Libraries that report which file changed watch each file, too. That
// takes one descriptor per file, and a queue may have thousands.
type kqueueSignal struct {
	queue       int
	reader      *os.File // of a pipe; readable after an interruption
	writer      *os.File
	interrupted atomic.Bool
}

// newChangeSignal watches an open directory. If that fails, it returns nil, and the
// directory is polled.
func newChangeSignal(dir int) changeSignal {
	s, err := newKqueueSignal(dir)
	if err != nil {
		return nil
	}
	return s
}

func newKqueueSignal(dir int) (_ *kqueueSignal, err error) {
	s := &kqueueSignal{}
	if s.queue, err = unix.Kqueue(); err != nil {
		return nil, fmt.Errorf("making kqueue: %w", err)
	}
	unix.CloseOnExec(s.queue)
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.reader, s.writer, err = os.Pipe(); err != nil {
		return nil, fmt.Errorf("making pipe: %w", err)
	}
	conn, err := s.reader.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("using pipe: %w", err)
	}
	if controlErr := conn.Control(func(pipe uintptr) { err = s.watch(dir, int(pipe)) }); controlErr != nil {
		return nil, fmt.Errorf("using pipe: %w", controlErr)
	}
	if err != nil {
		return nil, fmt.Errorf("watching directory: %w", err)
	}
	return s, nil
}

func (s *kqueueSignal) watch(dir, pipe int) error {
	var watched [2]unix.Kevent_t
	unix.SetKevent(&watched[0], dir, unix.EVFILT_VNODE, unix.EV_ADD|unix.EV_CLEAR)
	watched[0].Fflags = unix.NOTE_WRITE
	unix.SetKevent(&watched[1], pipe, unix.EVFILT_READ, unix.EV_ADD)
	_, err := unix.Kevent(s.queue, watched[:], nil, nil)
	return err
}

func (s *kqueueSignal) wait(timeout time.Duration) (changed bool, err error) {
	var events [2]unix.Kevent_t
	limit := unix.NsecToTimespec(timeout.Nanoseconds())
	n, err := unix.Kevent(s.queue, nil, events[:], &limit)
	if err == unix.EINTR {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("waiting for a change: %w", err)
	}
	for _, event := range events[:n] {
		if event.Filter == unix.EVFILT_VNODE {
			changed = true
			continue
		}
		s.interrupted.Store(false)
		if _, err := s.reader.Read(make([]byte, 1)); err != nil {
			return false, fmt.Errorf("reading an interruption: %w", err)
		}
	}
	return changed, nil
}

func (s *kqueueSignal) interrupt() {
	if s.interrupted.CompareAndSwap(false, true) {
		_, _ = s.writer.Write([]byte{0})
	}
}

func (s *kqueueSignal) close() {
	_ = unix.Close(s.queue)
	s.reader.Close()
	s.writer.Close()
}

package serializer

import (
	"os"
	"sync"
	"syscall"
	"time"
)

// sleeper is a file descriptor that one goroutine waits for in the runtime's poller, until a
// deadline or an interruption.
type sleeper struct {
	file *os.File
	conn syscall.RawConn

	mu          sync.Mutex // held while the deadline is set
	interrupted bool       // the current wait ends, or the next one if there is none
}

// newSleeper takes over a non-blocking descriptor.
func newSleeper(fd int, name string) (*sleeper, error) {
	s := &sleeper{file: os.NewFile(uintptr(fd), name)}
	var err error
	s.conn, err = s.file.SyscallConn()
	return s, err
}

// begin sets the deadline of a wait. It returns false if the wait was interrupted
// beforehand.
func (s *sleeper) begin(timeout time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.interrupted {
		s.interrupted = false
		return false
	}
	_ = s.file.SetReadDeadline(time.Now().Add(timeout))
	return true
}

// interrupt ends the wait, or the next one if there is none.
func (s *sleeper) interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.interrupted = true
	_ = s.file.SetReadDeadline(time.Now())
}

func (s *sleeper) close() { _ = s.file.Close() }

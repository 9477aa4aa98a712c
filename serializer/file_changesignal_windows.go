package serializer

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/windows"
)

// windowsSignal is a change notification. It reports that a name was added or removed,
// and has no buffer of changes that could overflow.
type windowsSignal struct {
	changes      windows.Handle
	interruption windows.Handle // an event

	mu     sync.Mutex
	closed bool
}

// newChangeSignal watches a directory. If that fails, it returns nil, and the directory
// is polled.
func newChangeSignal(path string) changeSignal {
	s, err := newWindowsSignal(path)
	if err != nil {
		return nil
	}
	return s
}

func newWindowsSignal(path string) (*windowsSignal, error) {
	interruption, err := windows.CreateEvent(nil, 0, 0, nil) // reset by the wait that it ends
	if err != nil {
		return nil, fmt.Errorf("making event: %w", err)
	}
	changes, err := windows.FindFirstChangeNotification(path, false, windows.FILE_NOTIFY_CHANGE_FILE_NAME)
	if err != nil {
		_ = windows.CloseHandle(interruption)
		return nil, fmt.Errorf("watching directory: %w", err)
	}
	return &windowsSignal{changes: changes, interruption: interruption}, nil
}

func (s *windowsSignal) wait(timeout time.Duration) (changed bool, err error) {
	// Rounded up: a timeout of zero would make the caller spin.
	milliseconds := uint32((timeout + time.Millisecond - 1) / time.Millisecond)
	event, err := windows.WaitForMultipleObjects([]windows.Handle{s.changes, s.interruption}, false, milliseconds)
	if err != nil {
		return false, fmt.Errorf("waiting for a change: %w", err)
	}
	if event != windows.WAIT_OBJECT_0 {
		return false, nil
	}
	// Rearmed before the caller reads the directory, so that later changes end the next
	// wait.
	if err := windows.FindNextChangeNotification(s.changes); err != nil {
		return false, fmt.Errorf("watching directory: %w", err)
	}
	return true, nil
}

func (s *windowsSignal) interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		_ = windows.SetEvent(s.interruption)
	}
}

func (s *windowsSignal) close() {
	_ = windows.FindCloseChangeNotification(s.changes)
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = windows.CloseHandle(s.interruption)
	s.closed = true
}

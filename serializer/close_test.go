package serializer

import (
	"errors"
	"testing"
	"time"
)

// Close used to leave those inside in the dark. A process that ended with them
// left their lock files and its owner file behind.
func TestCloseTellsThoseInside(t *testing.T) {
	dir := t.TempDir()
	for name, e := range map[string]Engine{"memory": NewMemory(MemoryOptions{}), "file": openFile(t, dir)} {
		t.Run(name, func(t *testing.T) {
			told := make(chan error, 1)
			turn, err := e.Enter(t.Context(), Arrival{Queue: "a_", Revoke: func(cause error) { told <- cause }})
			if err != nil {
				t.Fatal(err)
			}
			left := make(chan struct{})
			go func() {
				defer close(left)
				if cause := <-told; !errors.Is(cause, ErrClosed) {
					t.Errorf("told %v, want %v", cause, ErrClosed)
				}
				turn.Leave()
			}()
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			<-left
		})
	}
	if files := filesOf(t, dir); len(files) != 1 {
		t.Errorf("left in the lock directory: %v", files)
	}
}

// Bug: Close did not wait for the file of a finished ticket that somebody else
// was about to remove. A process that ended then left it behind.
func TestCloseWaitsForRemovals(t *testing.T) {
	dir := t.TempDir()
	e := openFile(t, dir)
	turn := enter(t, e, arrival("a_"))
	next := join(t, e, arrival("a_"))
	e.dir.changing.Lock()
	turn.Leave()
	(<-next).turn.Leave()
	left := make(chan []string)
	go func() {
		_ = e.Close()
		left <- filesOf(t, dir)
	}()
	select {
	case files := <-left:
		t.Fatalf("closed, and left in the lock directory: %v", files)
	case <-time.After(50 * time.Millisecond): // a good one waits for what follows
	}
	e.dir.changing.Unlock()
	e.dir.removeLeft()
	if files := <-left; len(files) != 1 {
		t.Errorf("left in the lock directory: %v", files)
	}
}

package serializer

import (
	"testing"
	"time"
)

// Bug: Close did not wait for the file of a finished ticket that somebody else
// was about to remove. A process that ended then left it behind.
func TestCloseWaitsForRemovals(t *testing.T) {
	dir := t.TempDir()
	e := openFile(t, dir)
	turn := enter(t, e, arrival("a_"))
	next := join(t, e, arrival("a_"))
	waitUntil(t, "the next ticket has its file", func() bool { e.mu.Lock(); defer e.mu.Unlock(); return !e.issuing })
	e.dir.removals.changing.Lock()
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
	e.dir.removals.changing.Unlock()
	e.dir.removeLeft()
	if files := <-left; len(files) != 1 {
		t.Errorf("left in the lock directory: %v", files)
	}
}

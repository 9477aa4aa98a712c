package serializer

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// patience is how long a test waits for what must come, but has no promised time.
const patience = time.Minute

func touch(t testing.TB, path ...string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(path...), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func openAt(t testing.TB, dir string, ahead time.Duration) *File {
	t.Helper()
	e, err := OpenFile(dir, FileOptions{Clock: func() time.Time { return time.Now().Add(ahead) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// started starts an arrival and does not wait for its ticket.
func started(e Engine, a Arrival) <-chan result {
	done := make(chan result, 1)
	go func() {
		turn, err := e.Enter(context.Background(), a)
		done <- result{turn, err}
	}()
	return done
}

// stillWaits makes sure that an arrival does not get in for a while, in which it
// would if it could.
func stillWaits(t testing.TB, waiting <-chan result, why string) {
	t.Helper()
	select {
	case r := <-waiting:
		t.Fatalf("%s: got in with error %v", why, r.err)
	case <-time.After(3 * tickInterval):
	}
}

func get(t testing.TB, waiting <-chan result) Turn {
	t.Helper()
	select {
	case r := <-waiting:
		if r.err != nil {
			t.Fatal(r.err)
		}
		return r.turn
	case <-time.After(patience):
		t.Fatal("gave up waiting for the turn")
	}
	return nil
}

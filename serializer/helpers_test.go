package serializer

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// patience is how long a test waits for what must come, but has no promised time.
const patience = wait.Patience

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

// stillWaits makes sure that an arrival does not enter for a while in which it
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

func arrivalFor(timeout time.Duration) Arrival {
	a := arrival("a_")
	a.Rule, a.Timeout = Rule{Limit: 1}, timeout
	return a
}

// awaitQueue waits until a queue has that many tickets. It does not list them: in a test
// with thousands of tickets, that would take most of the time.
func awaitQueue(t testing.TB, e Engine, n int) {
	t.Helper()
	wait.Until(t, "all are in the queue", func() bool {
		switch e := e.(type) {
		case *Memory:
			e.mu.Lock()
			defer e.mu.Unlock()
			return e.queues.byName["a_"].Len() == n
		case *File:
			e.mu.Lock()
			defer e.mu.Unlock()
			e.dir.mu.Lock()
			defer e.dir.mu.Unlock()
			return !e.issuing && e.dir.queues.byName["a_"].Len() == n
		}
		return false
	})
}

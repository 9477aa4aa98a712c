package serializer

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

func markersIn(t testing.TB, dir string) (markers []string) {
	t.Helper()
	for _, name := range filesOf(t, dir) {
		if strings.HasPrefix(name, evictMarker) {
			markers = append(markers, name)
		}
	}
	return markers
}

// Bug: the marker of an eviction stayed in the directory if its ticket left before the
// owner had read it, and both engines closed.
func TestMarkerOfTicketThatLeft(t *testing.T) {
	for _, first := range []string{"owner closes first", "owner closes last", "nobody closes"} {
		t.Run(first, func(t *testing.T) {
			dir := t.TempDir()
			owner, other := openAt(t, dir, 0), openAt(t, dir, 0)
			turn := enter(t, owner, arrival("a_"))
			enter(t, other, arrival("b_")).Leave()
			owner.dir.syncing.Lock() // it reads nothing
			if err := other.Evict(t.Context(), "a_", turn.Token()); err != nil {
				t.Fatal(err)
			}
			turn.Leave()
			owner.dir.syncing.Unlock()
			closing := []*File{owner, other}
			switch first {
			case "owner closes last":
				closing = []*File{other, owner}
			case "nobody closes":
				wait.Until(t, "the marker is gone", func() bool { return len(markersIn(t, dir)) == 0 })
			}
			for _, e := range closing {
				if err := e.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if left := markersIn(t, dir); left != nil {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// Bug: before its own first arrival, an engine knew nothing of the other processes in its
// directory. It listed no queues, and found no ticket to evict.
func TestBeforeTheFirstArrival(t *testing.T) {
	dir := t.TempDir()
	evicted := make(chan error, 1)
	a := arrival("a_")
	a.Revoke = func(cause error) { evicted <- cause }
	turn := enter(t, openAt(t, dir, 0), a)
	e := openAt(t, dir, 0)
	q := queueOf(t, e, "a_")
	if q.Inside != 1 || q.Path != dir || q.Tickets[0].Token != tokenText(turn.Token()) || !isTrue(q.Tickets[0].Alive) {
		t.Errorf("the queue is %+v", q)
	}
	for _, c := range []struct {
		queue string
		token uint64
	}{{"a_", turn.Token() + 1}, {"b_", turn.Token()}} {
		if err := e.Evict(t.Context(), c.queue, c.token); !errors.Is(err, ErrNoTicket) {
			t.Errorf("evicting %d from %s: %v", c.token, c.queue, err)
		}
	}
	if err := e.Evict(t.Context(), "a_", turn.Token()); err != nil {
		t.Fatal(err)
	}
	if cause := <-evicted; !errors.Is(cause, ErrEvicted) {
		t.Errorf("revoked for %v", cause)
	}
	turn.Leave()
	wait.Until(t, "the queue is empty", func() bool { return length(t, e, "a_") == 0 })
	if e.current() != nil {
		t.Error("the questions opened the directory")
	}
}

// An engine does not list the queues of other users in a directory that everybody may
// write to.
func TestBeforeTheFirstArrivalOfOneUser(t *testing.T) {
	dir := publicDir(t)
	p := helper{UID: alice, GID: alice, Dir: dir, Queue: "a_"}.start(t)
	p.says(t, "open")
	p.says(t, "inside")
	defer p.leave(t)
	if q := queueOf(t, openAt(t, dir, 0), "a_"); len(q.Tickets) != 0 {
		t.Errorf("another user's queue is listed: %+v", q)
	}
}

// A directory that is gone has no queues.
func TestQueuesOfMissingDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "locks")
	e := openAt(t, dir, 0)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if queues, err := e.Queues(context.Background()); err != nil || len(queues) != 0 {
		t.Errorf("%v, %v", queues, err)
	}
	if err := e.Evict(t.Context(), "a_", minStamp); !errors.Is(err, ErrNoTicket) {
		t.Errorf("evicting: %v", err)
	}
}

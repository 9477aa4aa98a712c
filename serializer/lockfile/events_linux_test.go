package lockfile

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/name"
)

// overflow makes more changes in a directory than the queue of notifications holds.
func overflow(t testing.TB, dir string) {
	t.Helper()
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	must(t, err)
	events, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || events > 1<<20 {
		t.Fatalf("the queue of notifications holds %q; lower it: sysctl fs.inotify.max_queued_events=16384", text)
	}
	from, to := touch(t, dir, "noise"), filepath.Join(dir, "more")
	for range events/2 + 1 { // one for each name
		must(t, os.Rename(from, to))
		from, to = to, from
	}
	must(t, os.Remove(from))
}

// A process that has lost events lists the directory. Its waiters still enter, in order.
// Bug: remote tickets that came and went meanwhile remained unknown. So the last number was
// not read from the guard, and if the clock was behind, a smaller one was issued. Bug: a
// ticket whose appearance was the last event counted as seen in the listing that followed.
func TestLostNotifications(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	deaf, other := openAt(t, dir, -time.Hour), open(t, dir)
	holder := enter(t, other, "a_")
	waiting := joined(t, deaf, "a_")
	must(t, other.Pause(t.Context(), "c_", serializer.Forever))
	paused := joined(t, deaf, "c_")
	hear := deaf.deaf()
	last := enter(t, other, "b_")
	overflow(t, dir)
	last.Leave()
	holder.Leave()
	again := started(other, "a_")
	must(t, other.Resume(t.Context(), "c_"))
	hear()
	turn := waiting.Wait(t)
	if again.Over() {
		t.Error("a later ticket went first")
	}
	turn.Leave()
	again.Wait(t).Leave()
	paused.Wait(t).Leave()
	wait.Until(t, "no ticket is left", func() bool { return len(filesWith(t, dir, "a_"))+len(filesWith(t, dir, "c_")) == 0 })
	enter(t, deaf, "b_").Leave()
	hear = deaf.deaf() // now, nothing else changes
	overflow(t, dir)
	last = enter(t, other, "b_")
	last.Leave()
	hear()
	turn = enter(t, deaf, "b_")
	defer turn.Leave()
	if turn.Token() <= last.Token() {
		t.Errorf("token %d after %d", turn.Token(), last.Token())
	}
}

// callingHandler is a log handler that calls the engine.
type callingHandler struct {
	slog.Handler
	call func()
	done chan struct{}
}

func (h *callingHandler) Handle(context.Context, slog.Record) error {
	h.call()
	h.done <- struct{}{}
	return nil
}

// Bug: the engine held locks while it logged. So a log handler that called the engine
// blocked it for ever.
func TestLogHandlerCallsEngine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h := &callingHandler{Handler: slog.NewTextHandler(io.Discard, nil), done: make(chan struct{}, 100)}
	opened := make(chan *serializer.Engine, 1)
	h.call = func() {
		e := <-opened
		if _, err := e.Queues(t.Context()); err != nil {
			t.Error(err)
		}
		_ = e.Close()
	}
	s, err := Open(dir, Options{Log: slog.New(h)})
	must(t, err)
	opened <- serializer.New(s, serializer.Options{})
	touch(t, dir, name.Pauses+"nonsense")
	select {
	case <-h.done:
	case <-time.After(wait.Patience):
		t.Fatal("the engine is blocked")
	}
}

// A pause applies to processes that start later, even if all that knew of it have ended, one of them with
// a request inside. At its end, its file is gone.
func TestPauseOutlivesProcesses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, killed := open(t, dir), helper{Dir: dir, Queue: "a_"}.inside(t)
	must(t, first.Pause(t.Context(), "a_", time.Now().Add(time.Hour)))
	killed.Signal(syscall.SIGKILL)
	must(t, first.Close())
	second := open(t, dir)
	waiter := joined(t, second, "a_")
	stillWaits(t, waiter, "the queue is paused")
	end := time.Now().Add(time.Second)
	must(t, second.Pause(t.Context(), "a_", end))
	waiter.Wait(t).Leave()
	if early := time.Until(end); early > 0 {
		t.Errorf("somebody entered %v before the end of the pause", early)
	}
	wait.Until(t, "the file of the pause is gone", func() bool { return len(filesWith(t, dir, name.Pauses)) == 0 })
}

// A pause that ended while no process was running pauses nobody, and is removed. A file
// that only looks like a pause pauses nobody, as nobody could say when it ends, and stays.
func TestPauseThatCountsNot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	over := touch(t, dir, name.Pause{Queue: "a_", End: time.Now().Add(-time.Second)}.String())
	var nonsense []string
	for _, text := range []string{"", "a_", "123-a_", "99999999999999999999-a_", "00001609693865378515-"} {
		nonsense = append(nonsense, touch(t, dir, name.Pauses+text))
	}
	e := open(t, dir)
	enter(t, e, "a_").Leave()
	wait.Until(t, "the pause that is over is gone", func() bool { return !exists(over) })
	for _, file := range nonsense {
		if !exists(file) {
			t.Errorf("%s is gone", file)
		}
	}
	wait.Until(t, "it is logged", func() bool { return e.log.has("looks like a pause", name.Pauses) })
	for queue, until := range map[string]time.Time{"a/b": serializer.Forever, strings.Repeat("x", 250): serializer.Forever} {
		if err := e.Pause(t.Context(), queue, until); err == nil {
			t.Errorf("queue %q was paused", queue)
		}
	}
}

// Bug: the request for an eviction stayed in the directory if its ticket left before the
// owner had read it, and all engines closed. One that is older than any process goes, too.
// Bug: the caller did not learn that the owner did not answer.
func TestMarkerOfTicketThatLeft(t *testing.T) {
	for _, closes := range []string{"owner first", "owner last", "nobody"} {
		t.Run(closes, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			touch(t, dir, name.Evicts+unownedName("a_"))
			owner, other := open(t, dir), open(t, dir)
			turn := enter(t, owner, "a_")
			enter(t, other, "b_").Leave()
			hear := owner.deaf()
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if err := other.Evict(ctx, "a_", turn.Token()); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("asking an owner that does not answer: %v; expected %v", err, context.DeadlineExceeded)
			}
			turn.Leave()
			hear()
			switch closes {
			case "owner first":
				wantFiles(t, dir, []string{name.Guard}, owner, other)
			case "owner last":
				wantFiles(t, dir, []string{name.Guard}, other, owner)
			default:
				wait.Until(t, "the request is gone", func() bool { return len(filesWith(t, dir, name.Evicts)) == 0 })
			}
		})
	}
}

// Bug: an eviction in a directory that was replaced and closed meanwhile asked for a file by a
// closed descriptor, until its context ended.
func TestEvictionWhileDirectoryIsReplaced(t *testing.T) {
	t.Parallel()
	for range 5 {
		dir := filepath.Join(t.TempDir(), "queues")
		one, other := open(t, dir), open(t, dir)
		holder := enter(t, one, "a_")
		wait.Until(t, "the other one knows it", func() bool { return length(t, other, "a_") == 1 })
		hear := one.deaf()
		evicted := make(chan error, 1)
		go func() { evicted <- other.Evict(context.Background(), "a_", holder.Token()) }()
		wait.Until(t, "the eviction is asked for", func() bool { return len(filesWith(t, dir, name.Evicts)) == 1 })
		must(t, errors.Join(os.Rename(dir, dir+".old"), os.Mkdir(dir, 0o700)))
		hear()
		holder.Leave()
		enter(t, other, "a_").Leave()
		select {
		case err := <-evicted:
			must(t, err)
		case <-time.After(wait.Patience):
			t.Fatal("the eviction does not end")
		}
	}
}

// Bug: the files of a long queue were put into it as the directory lists them, and each had
// to find its place. Meanwhile, no process could issue tickets.
func TestListedTicketsAppearInOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for range 100 {
		touch(t, dir, unownedName("a_"))
	}
	want := filesWith(t, dir, "a_")
	s := openStore(t, dir)
	appeared := new(appearances)
	s.Follow(appeared)
	must(t, s.Sync(t.Context()))
	must(t, s.Close())
	if !slices.Equal(appeared.keys, want) {
		t.Errorf("the tickets appeared in the order %q", appeared.keys)
	}
}

// appearances notes the tickets that appear.
type appearances struct {
	serializer.Events
	keys []string
}

func (a *appearances) Appeared(t *serializer.Ticket) { a.keys = append(a.keys, t.Key) }

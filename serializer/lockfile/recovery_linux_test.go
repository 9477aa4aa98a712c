package lockfile

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/dir"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/guard"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/name"
)

// A process that is stopped while it issues tickets keeps the guard. The others' requests
// end by their own timeouts, those inside leave, and everybody continues when it does.
func TestStoppedInGuard(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := open(t, dir)
	holder := enter(t, e, "b_")
	next := joined(t, e, "b_")
	p := helper{Dir: dir, Queue: "a_", StopInGuard: true}.start(t)
	p.do(t, "enter")
	p.halted(t)

	a := arrival("b_")
	a.Timeout = 50 * time.Millisecond
	if _, err := e.Enter(context.Background(), a); !errors.Is(err, serializer.ErrTimeout) {
		t.Errorf("got %v; expected a timeout", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := e.Enter(ctx, arrival("b_")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v; expected that the caller gave up", err)
	}
	holder.Leave()
	next.Wait(t).Leave()

	waiting := started(e, "a_")
	closing := open(t, dir)
	refusedByClose := started(closing, "a_")
	must(t, closing.Close())
	if err := refusedByClose.End(t); !errors.Is(err, serializer.ErrClosed) {
		t.Errorf("got %v; expected that the engine is closed", err)
	}
	p.Signal(syscall.SIGCONT)
	p.says(t, "inside")
	p.leave(t)
	waiting.Wait(t).Leave()
}

// Bug: a process waited for the guard that a stopped one had, for ever, even after somebody had
// replaced the guard or its directory. A newcomer made another guard, and issued tickets.
// Bug: when the stopped process continued, it made tickets with smaller numbers than those
// issued under the new guard. Two were inside at once.
func TestGuardReplacedUnderWaiter(t *testing.T) {
	t.Parallel()
	for what, replace := range map[string]func(dir string) error{
		"guard":     func(dir string) error { return os.Remove(filepath.Join(dir, name.Guard)) },
		"directory": func(dir string) error { return os.Rename(dir, dir+".old") },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "locks")
			stopped := helper{Dir: dir, Queue: "a_", StopInGuard: true}.start(t)
			waiting := helper{Dir: dir, Queue: "a_"}.start(t)
			stopped.do(t, "enter")
			stopped.halted(t)
			waiting.do(t, "enter")
			waiting.awaitsLock(t)
			waiting.Signal(syscall.SIGSTOP) // the newcomer comes first
			waiting.halted(t)
			must(t, replace(dir))
			newcomer := helper{Dir: dir, Queue: "a_"}.start(t)
			tokens := []string{newcomer.enter(t, "inside")}
			waiting.Signal(syscall.SIGCONT)
			waiting.saysNothing(t, "the newcomer is inside")
			newcomer.leave(t)
			tokens = append(tokens, waiting.says(t, "inside"))
			stopped.Signal(syscall.SIGCONT)
			stopped.saysNothing(t, "somebody is inside who came by the new guard")
			waiting.leave(t)
			if tokens = append(tokens, stopped.says(t, "inside")); !slices.IsSorted(tokens) {
				t.Errorf("entered in the order %q", tokens)
			}
		})
	}
}

// A process that leaves a replaced directory while a stopped one has its guard goes on above its
// last number, even if the process that issued that has ended, and the clock is behind.
func TestNumbersAfterGuardOfStopped(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "locks")
	late, ahead := openAt(t, dir, -time.Hour), openAt(t, dir, 24*time.Hour)
	before := enter(t, ahead, "a_")
	before.Leave()
	must(t, ahead.Close())
	stopped := helper{Dir: dir, Queue: "a_", StopInGuard: true}.start(t)
	stopped.do(t, "enter")
	stopped.halted(t)
	next := started(late, "a_")
	stillWaits(t, next, "another process has the guard")
	movedAway(t, dir)
	turn := next.Wait(t)
	defer turn.Leave()
	if turn.Token() <= before.Token() {
		t.Errorf("token %d after %d", turn.Token(), before.Token())
	}
}

// Bug: a process that died after it had recorded a number, and before it made the file, left no
// event. If the clock was behind, another process gave the same number again.
func TestNumberWithoutFile(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	e := openAt(t, path, -time.Hour)
	first := enter(t, e, "a_")
	first.Leave()
	open(t, path) // the process of which the number is
	enter(t, e, "a_").Leave()
	sys, err := dir.Make(path)
	must(t, err)
	defer sys.Close()
	g, err := guard.Open(sys)
	must(t, err)
	recorded := first.Token() + uint64(time.Hour.Microseconds())
	must(t, errors.Join(g.Lock(t.Context()), g.Record(recorded)))
	g.Close()
	turn := enter(t, e, "a_")
	defer turn.Leave()
	if turn.Token() <= recorded {
		t.Errorf("token %d, and %d was recorded before", turn.Token(), recorded)
	}
}

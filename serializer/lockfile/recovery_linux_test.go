package lockfile

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
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
	get(t, next).Leave()

	waiting := started(e, "a_")
	closing := open(t, dir)
	refusedByClose := started(closing, "a_")
	if err := closing.Close(); err != nil {
		t.Error(err)
	}
	if r := <-refusedByClose; !errors.Is(r.err, serializer.ErrClosed) {
		t.Errorf("got %v; expected that the engine is closed", r.err)
	}
	p.signal(t, syscall.SIGCONT)
	p.says(t, "inside")
	p.leave(t)
	get(t, waiting).Leave()
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
			waiting.signal(t, syscall.SIGSTOP) // the newcomer comes first
			waiting.halted(t)
			must(t, replace(dir))
			newcomer := helper{Dir: dir, Queue: "a_"}.start(t)
			tokens := []string{newcomer.enter(t, "inside")}
			waiting.signal(t, syscall.SIGCONT)
			waiting.saysNothing(t, "the newcomer is inside")
			newcomer.leave(t)
			tokens = append(tokens, waiting.says(t, "inside"))
			stopped.signal(t, syscall.SIGCONT)
			stopped.saysNothing(t, "somebody is inside who came by the new guard")
			waiting.leave(t)
			if tokens = append(tokens, stopped.says(t, "inside")); !slices.IsSorted(tokens) {
				t.Errorf("entered in the order %q", tokens)
			}
		})
	}
}

// Who leaves a directory that was replaced while a stopped process has its guard continues above
// its last number, even if the process that issued that has ended, and the clock is behind.
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
	turn := get(t, next)
	defer turn.Leave()
	if turn.Token() <= before.Token() {
		t.Errorf("token %d after %d", turn.Token(), before.Token())
	}
}

// Arrivals, also readers, wait for an unowned file until it counts as abandoned. Its age
// counts from its last change. Bug: the five minutes began anew with each process, although
// the file was an hour old. Bug: they counted from the last change of its inode, so a file
// that was copied or unpacked with its old time was young.
func TestUnownedFileIsAsOldAsItIs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := touch(t, dir, unownedName("a_"))
	hourOld := time.Now().Add(-time.Hour)
	must(t, os.Chtimes(path, hourOld, hourOld))
	e := open(t, dir)
	enter(t, e, "a_").Leave()
	wait.Until(t, "the old file is taken as abandoned", func() bool { return e.log.has("abandoned", filepath.Base(path)) && !exists(path) })
	path = touch(t, dir, unownedName("a_"))
	reader := arrival("a_")
	reader.Rule.Shared = true
	next := startedFor(e, reader)
	stillWaits(t, next, "the file is young, and nobody knows its rule")
	if q := queueOf(t, e, "a_"); len(q.Tickets) != 2 || q.Tickets[0].Alive == nil || *q.Tickets[0].Alive {
		t.Errorf("the queue is %+v", q)
	}
	must(t, os.Chtimes(path, hourOld, hourOld))
	get(t, next).Leave()
}

// Arrivals wait for whatever has the name of a ticket, and follow no link, until it counts
// as abandoned. Bug: a hard link to a local owner file counted as the ticket of a living
// owner for as long as the process lived. Bug: what could not be removed blocked for ever.
// Bug: a directory was only noticed by those who listed the lock directory after it was made.
func TestPlantedTicket(t *testing.T) {
	t.Parallel()
	target := touch(t, t.TempDir(), "target")
	for label, plant := range map[string]func(dir, path string) error{
		"symbolic link": func(_, path string) error { return os.Symlink(target, path) },
		"dangling link": func(_, path string) error { return os.Symlink(target+"x", path) },
		"pipe":          func(_, path string) error { return syscall.Mkfifo(path, 0o600) },
		"hard link":     func(_, path string) error { return os.Link(target, path) },
		"directory":     func(_, path string) error { return os.Mkdir(path, 0o700) },
		"own owner": func(dir, path string) error {
			return os.Link(filepath.Join(dir, filesWith(t, dir, name.Owners)[0]), path)
		},
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			e := open(t, dir)
			ticket := filepath.Join(dir, unownedName("a_"))
			must(t, plant(dir, ticket))
			next := started(e, "a_")
			stillWaits(t, next, "it is first")
			e.age(t, ticket)
			get(t, next).Leave()
			wait.Until(t, "it is logged", func() bool { return e.log.has("abandoned", filepath.Base(ticket)) })
			if exists(ticket) != (label == "directory") || exists(target+"x") || !exists(target) {
				t.Error("it is still there, or a link was followed")
			}
		})
	}
}

// Bug: an unowned file with the name of the next ticket lost its place in the queue, and
// was then removed. And a file with the number of another process's ticket stayed in its
// queue for ever.
func TestNameTaken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ahead := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	e := openWith(t, dir, func() time.Time { return ahead })
	taken := touch(t, dir, Name{Prefix: "a_", Number: uint64(ahead.UnixMicro()), Client: netip.MustParseAddrPort(arrival("").Client)}.String())
	next := started(e, "a_")
	stillWaits(t, next, "the file is first")
	if !exists(taken) {
		t.Fatal("it was removed")
	}
	remove(t, taken)
	turn := get(t, next)
	other := open(t, dir)
	twin := touch(t, dir, Name{Prefix: "b_", Number: turn.Token(), Client: netip.MustParseAddrPort(arrival("").Client)}.String())
	waiting := started(other, "b_")
	stillWaits(t, waiting, "the file is first")
	turn.Leave()
	stillWaits(t, waiting, "the file is first, though the ticket with its number is gone")
	remove(t, twin)
	get(t, waiting).Leave()
}

// Bug: an unowned file with the number of a dead process's ticket was removed with it, and
// nobody waited for it any more.
func TestNumberOfDeadProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := open(t, dir)
	holder := helper{Dir: dir, Queue: "a_"}.inside(t)
	token := tokenAt(t, e, "a_", 0)
	twin := touch(t, dir, Name{Prefix: "b_", Number: token, Client: netip.MustParseAddrPort(arrival("").Client)}.String())
	waiting := started(e, "b_")
	stillWaits(t, waiting, "the file is first")
	next := started(e, "a_")
	holder.signal(t, syscall.SIGKILL)
	get(t, next).Leave()
	stillWaits(t, waiting, "the file is first, though its number's process is dead")
	remove(t, twin)
	get(t, waiting).Leave()
}

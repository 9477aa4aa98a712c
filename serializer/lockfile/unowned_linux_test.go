package lockfile

import (
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/name"
)

// Arrivals, also readers, wait for an unowned file until it counts as abandoned. Its age
// counts from its last change. Bug: the five minutes began anew with each process, although
// the file was an hour old. Bug: they counted from the last change of its inode, so a file
// that was copied or unpacked with its old time was young. Bug: they counted from when it was
// first seen, although that program went on to change it.
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
	hear := e.deaf()
	must(t, os.Chtimes(path, time.Now(), time.Now()))
	e.dir().remote[filepath.Base(path)].since = hourOld // when it was first seen
	hear()
	stillWaits(t, next, "the file has just been changed")
	must(t, os.Chtimes(path, hourOld, hourOld))
	next.Wait(t).Leave()
}

// Arrivals wait for whatever has the name of a ticket, and follow no link, until it counts
// as abandoned. Bug: a hard link to a local owner file counted as the ticket of a living
// owner for as long as the process lived. Bug: what could not be removed blocked for ever.
// Bug: a directory was only noticed by those who listed the lock directory after it was made.
// Bug: a renamed lock file never counted as abandoned while its owner had traffic: it is a link
// to the owner's file, which changes with every ticket.
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
			wait.Until(t, "the queue goes on", func() bool {
				enter(t, e, "b_").Leave()
				return next.Over()
			})
			next.Wait(t).Leave()
			wait.Until(t, "it is logged", func() bool { return e.log.has("abandoned", filepath.Base(ticket)) })
			if exists(ticket) != (label == "directory") || exists(target+"x") || !exists(target) {
				t.Error("it is still there, or a link was followed")
			}
		})
	}
}

// An unowned file has its place whichever number it has. Bug: one with the name of the next
// ticket lost its place, and was then removed. Bug: one with the number of another process's
// ticket stayed in its queue for ever, or was removed when that process died.
func TestNumberTaken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ahead := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	named := func(queue string, number uint64) string {
		return Name{Prefix: queue, Number: number, Client: netip.MustParseAddrPort(arrival("").Client)}.String()
	}
	taken := touch(t, dir, named("a_", uint64(ahead.UnixMicro())))
	e := openWith(t, dir, func() time.Time { return ahead })
	next := started(e, "a_")
	stillWaits(t, next, "the file is first")
	if !exists(taken) {
		t.Fatal("it was removed")
	}
	remove(t, taken)
	turn := next.Wait(t)
	killed := helper{Dir: dir, Queue: "c_"}.inside(t)
	other := open(t, dir)
	for _, number := range []uint64{tokenAt(t, other, "c_", 0), turn.Token()} {
		twin := touch(t, dir, named("b_", number))
		waiting := started(other, "b_")
		stillWaits(t, waiting, "the file is first")
		if number == turn.Token() {
			turn.Leave()
		} else {
			killed.Signal(syscall.SIGKILL)
		}
		started(other, "c_").Wait(t).Leave()
		stillWaits(t, waiting, "the file is first, though the ticket with its number is gone")
		remove(t, twin)
		waiting.Wait(t).Leave()
	}
}

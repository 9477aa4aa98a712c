package lockfile

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/filelock"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/name"
)

// edits are what somebody may do to the owner file or lock file of a holder.
//
// Bug: a copy of an owner file was believed, and proved the death of the owner, since no
// process had locked it. Bug: a lock file that was renamed hid that the one with the same
// number was missing. Bug: a single damaged bit was believed. Bug: the words behind a cut within
// a page read as free. Bug: any locked file at the name of an owner's was taken for the owner's,
// who was dead once that was unlocked. Bug: with a wrong name in its text, an owner file that was opened by a
// ticket counted as another owner's, and its damaged words were believed for good.
var edits = map[string]func(owner, ticket string) error{
	"lock file removed":  func(_, ticket string) error { return os.Remove(ticket) },
	"lock file renamed":  func(_, ticket string) error { return os.Rename(ticket, renamed(ticket)) },
	"owner file removed": func(owner, _ string) error { return os.Remove(owner) },
	"owner file copied": func(owner, _ string) error {
		return copyFile(owner, filepath.Join(filepath.Dir(owner), name.Owners+"copy"))
	},
	"owner file copied over itself": func(owner, _ string) error {
		return errors.Join(copyFile(owner, beside(owner)), os.Rename(beside(owner), owner))
	},
	"owner file replaced": func(owner, _ string) error {
		return errors.Join(os.WriteFile(beside(owner), []byte("garbage"), 0o600), os.Rename(beside(owner), owner))
	},
	"guard moved to owner file": func(owner, _ string) error { return os.Rename(filepath.Join(filepath.Dir(owner), name.Guard), owner) },
	"locked file moved to owner file": func(owner, _ string) error {
		f, err := os.Create(beside(owner))
		_, lockErr := filelock.Try(f.Fd())
		time.AfterFunc(tickInterval, func() { f.Close() })
		return errors.Join(err, lockErr, os.Rename(f.Name(), owner))
	},
	"owner file emptied": cut(0),
	"half the text":      cut(100),
	"no words left":      cut(4096),
	"half the words":     cut(4096 + 2048),
	"emptied, lock file removed": func(owner, ticket string) error {
		return errors.Join(os.Truncate(owner, 0), os.Remove(ticket))
	},
	"cut in a page, lock file removed": func(owner, ticket string) error {
		return errors.Join(os.Truncate(owner, 4096+8), os.Remove(ticket))
	},
	"overwritten, lock file removed": func(owner, ticket string) error { // bug: only a cut file counted as damaged
		return errors.Join(overwrite(0, strings.Repeat(zeros, 257))(owner, ticket), os.Remove(ticket))
	},
	"text overwritten":     overwrite(0, zeros[:100]),
	"words overwritten":    overwrite(4096, strings.Repeat(zeros, 128)),
	"text in the words":    overwrite(4096, "this is not the text of an owner file, but that of somebody else"),
	"inside is leaving":    flipBit(0),
	"writer is reader":     flipBit(8),
	"text and a free word": damageText,
	"text damaged, and name removed": func(owner, ticket string) error {
		return errors.Join(damageText(owner, ticket), os.Remove(owner))
	},
}

const ones = "\xff\xff\xff\xff\xff\xff\xff\xff"

var zeros = string(make([]byte, 4096))

// Whatever somebody does by hand to the files of a holder, nobody enters beside it: neither a
// waiter whose process knew them, nor a newcomer. That holds while the holder's process runs,
// is stopped, or has continued. When the holder has left or was killed, the queue goes on, and
// nothing is left. An edit that leaves no trace of the owner is known only to the first.
func TestEditedByHand(t *testing.T) {
	t.Parallel()
	for what, edit := range edits {
		for _, fate := range []string{"runs", "is stopped", "is killed"} {
			t.Run(what+", and its process "+fate, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				known := open(t, dir)
				holder := helper{Dir: dir, Queue: "a_"}.inside(t)
				waiter := joined(t, known, "a_")
				if fate != "runs" {
					holder.halt(t)
				}
				ticket := fileOf(t, dir, tokenAt(t, known, "a_", 0))
				must(t, edit(ownerOf(t, dir, known), ticket))
				reader := arrival("a_")
				reader.Rule = serializer.Rule{Shared: true}
				newcomer := startedFor(open(t, dir), reader)
				stillWaits(t, waiter, "the holder is inside")
				stillWaits(t, newcomer, "the holder is inside, and came earlier")
				switch fate {
				case "is killed":
					holder.Signal(syscall.SIGKILL)
				case "is stopped":
					holder.Signal(syscall.SIGCONT)
					fallthrough
				default:
					stillWaits(t, waiter, "the holder is inside, and has had time to mend it")
					holder.leave(t)
				}
				waiter.Wait(t).Leave()
				newcomer.Wait(t).Leave()
				wait.Until(t, "its lock files are gone", func() bool { return len(filesWith(t, dir, "a_")) == 0 })
			})
		}
	}
}

// A process that did not know a stopped holder finds it all the same, by its tickets or by its
// owner file. Its callers wait until the holder has left or was killed. While a lock file is
// missing, its queue is not known, so the callers of all queues wait.
func TestEditedBeforeOthersStart(t *testing.T) {
	t.Parallel()
	for what, edit := range edits {
		for _, how := range []syscall.Signal{syscall.SIGCONT, syscall.SIGKILL} {
			if how == syscall.SIGKILL && !slices.Contains([]string{"lock file removed", "owner file removed", "text and a free word"}, what) {
				continue // nothing may say then whose its ticket was: it waits for five minutes
			}
			t.Run(what+", "+how.String(), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				holder := helper{Dir: dir, Queue: "a_"}.inside(t)
				holder.halt(t)
				must(t, edit(filepath.Join(dir, filesWith(t, dir, name.Owners)[0]), filepath.Join(dir, filesWith(t, dir, "a_")[0])))
				e := open(t, dir)
				reader := arrival("a_")
				reader.Rule = serializer.Rule{Shared: true}
				next, elsewhere := startedFor(e, reader), started(e, "d_")
				stillWaits(t, next, "the holder is stopped")
				if what == "lock file removed" {
					stillWaits(t, elsewhere, "the queue of the missing file is not known")
				}
				holder.Signal(how)
				if how == syscall.SIGCONT {
					stillWaits(t, next, "the holder is inside again")
					holder.leave(t)
				}
				elsewhere.Wait(t).Leave()
				next.Wait(t).Leave()
			})
		}
	}
}

// An owner file that somebody removes again and again is made again until there are too many
// that others may know. Bugs: the process then released the first one's lock, and others took
// it for dead while it was inside; and it kept all later ones open for ever.
func TestOwnerFileRemovedTooOften(t *testing.T) {
	t.Parallel()
	dir, one, other := openTwo(t)
	holder := enter(t, one, "a_")
	if n := length(t, other, "a_"); n != 1 {
		t.Fatalf("the other process knows %d tickets", n)
	}
	openFiles := func() (n int) {
		for _, fd := range filesOf(t, "/proc/self/fd") {
			if file, err := os.Readlink("/proc/self/fd/" + fd); err == nil && strings.HasPrefix(file, dir) {
				n++
			}
		}
		return n
	}
	var refused error
	for range 100 {
		remove(t, filepath.Join(dir, one.ownFile()))
		c := started(one, "b_")
		if refused = c.End(t); refused == nil {
			c.Turn.Leave()
		}
	}
	if refused == nil {
		t.Error("the owner file was made again for ever")
	}
	remove(t, fileOf(t, dir, holder.Token()))
	stillWaits(t, started(other, "a_"), "the holder is inside")
	if n := openFiles(); n < 60 {
		t.Errorf("only %d files are open: others may know one that is not", n)
	}
	holder.Leave()
	wait.Until(t, "the files that nobody needs are closed", func() bool { return openFiles() < 20 })
	enter(t, one, "b_").Leave()
}

// What stands in the place of the guard, and cannot serve, refuses arrivals, and the error names it.
// When it is removed, the queue works again. What stands in the place of a process's owner file does
// not matter. Bug: an owner file in place of the guard was accepted once its last ticket was out. Its
// owner has locked it for good, so all queues stood still.
func TestPlaceTaken(t *testing.T) {
	t.Parallel()
	dir, one, other := openTwo(t)
	enter(t, one, "a_").Leave()
	own, guard := filepath.Join(dir, one.ownFile()), filepath.Join(dir, name.Guard)
	must(t, os.Rename(own, guard))
	for _, e := range []node{one, other} {
		err := started(e, "a_").End(t)
		if !errors.Is(err, serializer.ErrStorage) || !strings.Contains(err.Error(), name.Guard) {
			t.Errorf("got %v", err)
		}
	}
	remove(t, guard)
	testlease.EnterSoon(t, one.Engine)
	own = filepath.Join(dir, one.ownFile())
	must(t, errors.Join(os.RemoveAll(own), os.Mkdir(own, 0o700)))
	enter(t, one, "a_").Leave()
}

// Bug: if the file of a dead process's ticket could not be removed, a process that started later
// waited for ever, in all queues. Bug: arrivals waited for ever for such a file in a directory
// that was replaced.
func TestFileCannotBeRemoved(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "queues")
	known := open(t, dir)
	cannotBeRemoved := func(token uint64) {
		file := fileOf(t, dir, token)
		must(t, errors.Join(os.Remove(file), os.Mkdir(file, 0o700)))
	}
	holder := helper{Dir: dir, Queue: "a_"}.inside(t)
	next := joined(t, known, "a_")
	holder.halt(t)
	cannotBeRemoved(tokenAt(t, known, "a_", 0))
	holder.Signal(syscall.SIGKILL)
	turn := next.Wait(t)
	e := open(t, dir)
	enter(t, e, "b_").Leave()
	cannotBeRemoved(turn.Token())
	turn.Leave()
	movedAway(t, dir)
	must(t, os.Mkdir(dir, 0o700))
	enter(t, known, "a_").Leave()
}

// renamed is the path of a ticket's file as one of another queue.
func renamed(ticket string) string {
	return filepath.Join(filepath.Dir(ticket), "c"+strings.TrimPrefix(filepath.Base(ticket), "a"))
}

// beside is the path of a file of no name of ours.
func beside(owner string) string { return filepath.Join(filepath.Dir(owner), "draft") }

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	return errors.Join(err, os.WriteFile(to, text, 0o600))
}

// cut truncates an owner file.
func cut(size int64) func(owner, _ string) error {
	return func(owner, _ string) error { return os.Truncate(owner, size) }
}

// overwrite overwrites a part of an owner file.
func overwrite(at int64, text string) func(owner, _ string) error {
	return func(owner, _ string) error {
		f, err := os.OpenFile(owner, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.WriteAt([]byte(text), at)
		return err
	}
}

// damageText damages the text of an owner file, and a free word, which says then that a ticket
// stands.
func damageText(owner, ticket string) error {
	const somePlace, standing = 4096 + 48, "\x03\x00\x00\x00\x00\x00\x00\x00"
	return errors.Join(overwrite(8, ones)(owner, ticket), overwrite(somePlace, standing)(owner, ticket))
}

// flipBit changes the lowest bit at an offset in the words of a ticket.
func flipBit(at int64) func(owner, ticket string) error {
	return func(owner, ticket string) error {
		n, err := ParseName(filepath.Base(ticket))
		text, readErr := os.ReadFile(owner)
		for place := 4096; place < len(text); place += 16 {
			if w := binary.NativeEndian.Uint64(text[place:]); w>>3 == n.Number && w&7 != 0 {
				at := int64(place) + at
				return errors.Join(err, readErr, overwrite(at, string(text[at]^1))(owner, ticket))
			}
		}
		return errors.Join(err, readErr, fs.ErrNotExist)
	}
}

// ownerOf is the path of the only other owner file than an engine's own.
func ownerOf(t testing.TB, dir string, e node) string {
	t.Helper()
	for _, file := range filesWith(t, dir, name.Owners) {
		if file != e.ownFile() {
			return filepath.Join(dir, file)
		}
	}
	t.Fatal("there is no other owner file")
	return ""
}

package lockfile

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/name"
)

// Whatever somebody does by hand to one file of a living holder, a process that starts does
// not let its caller in, whether the holder's process runs or is stopped.
//
// Bug: words in a copy of an owner file were believed, and the copy, which nobody had locked,
// proved the death of its owner. A lock file that was renamed hid that the one with the same
// number was missing. A single damaged bit in a state or a rule was believed.
func TestFilesChangedByHand(t *testing.T) {
	t.Parallel()
	flip := func(at int64) func(owner, _ string) error {
		return func(owner, ticket string) error { return flipBit(owner, ticket, at) }
	}
	for what, change := range map[string]func(owner, ticket string) error{
		"owner file copied over itself": func(owner, _ string) error {
			text, err := os.ReadFile(owner)
			return errors.Join(err, os.WriteFile(owner+"~", text, 0o600), os.Rename(owner+"~", owner))
		},
		"guard moved to the owner file": func(owner, _ string) error {
			return os.Rename(filepath.Join(filepath.Dir(owner), name.Guard), owner)
		},
		"lock file renamed": func(_, ticket string) error { return os.Rename(ticket, renamed(ticket)) },
		"inside is leaving": flip(0),
		"writer is reader":  flip(8),
	} {
		for _, stopped := range []bool{false, true} {
			t.Run(what+map[bool]string{true: ", stopped"}[stopped], func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				holder := helper{Dir: dir, Queue: "a_"}.inside(t)
				if stopped {
					holder.halt(t)
				}
				owner, ticket := filesWith(t, dir, name.Owners)[0], filesWith(t, dir, "a_")[0]
				must(t, change(filepath.Join(dir, owner), filepath.Join(dir, ticket)))
				reader := arrival("a_")
				reader.Rule = serializer.Rule{Shared: true}
				next := startedFor(open(t, dir), reader)
				stillWaits(t, next, "the holder is inside")
				stillWaits(t, next, "the holder is inside, and has had time to mend it")
				if stopped {
					holder.signal(t, syscall.SIGCONT)
				}
				holder.leave(t)
				get(t, next).Leave()
			})
		}
	}
}

// flipBit changes the lowest bit at an offset in the words of a ticket.
func flipBit(owner, ticket string, at int64) error {
	n, err := ParseName(filepath.Base(ticket))
	text, readErr := os.ReadFile(owner)
	for place := 4096; place < len(text); place += 16 {
		if w := binary.NativeEndian.Uint64(text[place:]); w>>3 == n.Number && w&7 != 0 {
			at += int64(place)
			return errors.Join(err, readErr, overwrite(owner, at, string(text[at]^1)))
		}
	}
	return errors.Join(err, readErr, errors.New("there is no such word"))
}

// renamed is the path of a ticket's file as one of another queue.
func renamed(ticket string) string {
	return filepath.Join(filepath.Dir(ticket), "c"+strings.TrimPrefix(filepath.Base(ticket), "a"))
}

// Bug: other processes took over any locked file at the name of an owner's. A process that
// issues tickets locks the guard; once it had unlocked that, the owner was dead.
func TestGuardMovedToKnownOwnerFile(t *testing.T) {
	t.Parallel()
	dir, one, two := openTwo(t)
	turn := enter(t, one, "a_")
	next := joined(t, two, "a_")
	hear := one.deaf() // it does not mend that
	defer hear()
	guard := two.dir().guard
	must(t, guard.Lock(t.Context()))
	must(t, os.Rename(filepath.Join(dir, name.Guard), filepath.Join(dir, one.dir().own.Name)))
	stillWaits(t, next, "the holder is inside, and the guard is locked")
	guard.Unlock()
	stillWaits(t, next, "the holder is inside")
	hear()
	turn.Leave()
	get(t, next).Leave()
}

// Bug: a lock file that was renamed to another queue never counted as abandoned while its
// owner had traffic: it is a link to the owner's file, which changes with every ticket.
func TestRenamedFileIsAbandoned(t *testing.T) {
	t.Parallel()
	dir, one, other := openTwo(t)
	holder := enter(t, one, "a_")
	file := filepath.Join(dir, filesWith(t, dir, "a_")[0])
	must(t, os.Rename(file, renamed(file)))
	wait.Until(t, "it is put back", func() bool { return exists(file) })
	holder.Leave()
	next := joined(t, other, "c_")
	other.age(t, renamed(file))
	wait.Until(t, "the other queue goes on", func() bool {
		enter(t, one, "a_").Leave()
		return len(next) > 0
	})
	get(t, next).Leave()
}

// Bug: whoever started after the file of a dead process's ticket could not be removed waited for
// ever, in all queues. The same kept newcomers from a directory that had replaced another.
func TestFileCannotBeRemoved(t *testing.T) {
	t.Run("of a dead process", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		known := open(t, dir)
		holder := helper{Dir: dir, Queue: "a_"}.inside(t)
		next := joined(t, known, "a_")
		holder.halt(t)
		file := fileOf(t, dir, tokenAt(t, known, "a_", 0))
		must(t, errors.Join(os.Remove(file), os.Mkdir(file, 0o700)))
		holder.signal(t, syscall.SIGKILL)
		get(t, next).Leave()
		enter(t, open(t, dir), "b_").Leave()
	})
	t.Run("in a directory that was replaced", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(t.TempDir(), "queues")
		e := open(t, dir)
		turn := enter(t, e, "a_")
		file := fileOf(t, dir, turn.Token())
		must(t, errors.Join(os.Remove(file), os.Mkdir(file, 0o700)))
		turn.Leave()
		must(t, errors.Join(os.Rename(dir, dir+".old"), os.Mkdir(dir, 0o700)))
		enter(t, e, "a_").Leave()
	})
}

// Bug: an owner file in place of the guard was accepted once its last ticket was out. Its owner
// has locked it for good, so all queues stood still without a word.
func TestOwnerFileMovedToGuard(t *testing.T) {
	t.Parallel()
	dir, one, other := openTwo(t)
	enter(t, one, "a_").Leave()
	must(t, os.Rename(filepath.Join(dir, one.dir().own.Name), filepath.Join(dir, name.Guard)))
	wantRefusal(t, started(other, "a_"), serializer.ErrStorage)
	remove(t, filepath.Join(dir, name.Guard))
	wait.Until(t, "the queue works again", func() bool {
		r := <-started(other, "a_")
		if r.err == nil {
			r.turn.Leave()
		}
		return r.err == nil
	})
}

// Bug: what cannot be linked to, in the place of a process's own owner file, was reported as
// a file system without hard links.
func TestDirectoryInPlaceOfOwnerFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := open(t, dir)
	file := filepath.Join(dir, e.dir().own.Name)
	must(t, errors.Join(os.Remove(file), os.Mkdir(file, 0o700)))
	r := <-started(e, "a_")
	if !errors.Is(r.err, serializer.ErrStorage) || !strings.Contains(r.err.Error(), "making "+filepath.Base(file)) || strings.Contains(r.err.Error(), "hard links") {
		t.Errorf("got %v", r.err)
	}
	remove(t, file)
	enter(t, e, "a_").Leave()
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

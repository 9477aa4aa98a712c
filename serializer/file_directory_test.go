//go:build unix && !aix && !solaris

package serializer

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// hooked is a real directory in which calls can be made to fail.
type hooked struct {
	lockDir
	failing *atomic.Pointer[error] // of identify and probe
}

func (h *hooked) fail(err error) { h.failing.Store(&err) }

func (h *hooked) identify(name string) (fileID, error) {
	if err := h.failing.Load(); err != nil && *err != nil {
		return fileID{}, *err
	}
	return h.lockDir.identify(name)
}

func (h *hooked) probe(name string) (ownerProbe, error) {
	if err := h.failing.Load(); err != nil && *err != nil {
		return nil, *err
	}
	return h.lockDir.probe(name)
}

// openHooked opens an engine and its directory. A failing call fails in every directory
// that it opens.
func openHooked(t testing.TB, dir string) (*File, *hooked) {
	t.Helper()
	h := &hooked{failing: new(atomic.Pointer[error])}
	e := openAt(t, dir, 0)
	e.open = func(path string, clock func() time.Time) (lockDir, error) {
		d, err := openLockDir(path, clock)
		return &hooked{d, h.failing}, err
	}
	enter(t, e, arrival("first_")).Leave()
	return e, h
}

// deadOwner makes an owner that holds a ticket, and whose process ends when
// the returned function is called.
func deadOwner(t testing.TB, dir, queue string) (ticket string, die func()) {
	t.Helper()
	d := openOS(t, dir)
	if err := d.lock(); err != nil {
		t.Fatal(err)
	}
	defer d.unlock()
	last, err := d.last()
	if err != nil {
		t.Fatal(err)
	}
	name := Ticket{Prefix: queue, Stamp: max(last, minStamp) + 1}.Name()
	if err := errors.Join(d.setLast(max(last, minStamp)+1), d.create(name, max(last, minStamp)+1, ownerKind{})); err != nil {
		t.Fatal(err)
	}
	return name, func() {
		for _, o := range d.owners {
			o.close()
		}
		clear(d.owners)
	}
}

// The death of an owner is noticed at once, or else by the tick.
func TestDeadOwnerIsReaped(t *testing.T) {
	dir := t.TempDir()
	e := openAt(t, dir, 0)
	enter(t, e, arrival("b_")).Leave()
	ticket, die := deadOwner(t, dir, "a_")
	next := started(e, arrival("a_"))
	stillWaits(t, next, "the owner lives")
	died := time.Now()
	die()
	get(t, next).Leave()
	if took := time.Since(died); took > patience/2 {
		t.Errorf("took %v", took)
	}
	wait.Until(t, "its files are gone", func() bool {
		_, err := os.Lstat(filepath.Join(dir, ticket))
		return errors.Is(err, fs.ErrNotExist)
	})
}

// Bug: if the tickets of a dead owner could not be read when its death was noticed, the
// owner was forgotten. Arrivals waited for its tickets without end.
func TestDeadOwnerIsReapedLater(t *testing.T) {
	dir := t.TempDir()
	_, die := deadOwner(t, dir, "a_")
	e, h := openHooked(t, dir)
	next := started(e, arrival("a_"))
	stillWaits(t, next, "the owner lives")
	h.fail(fs.ErrPermission)
	die()
	stillWaits(t, next, "the tickets cannot be read")
	h.fail(nil)
	get(t, next).Leave()
}

// Bug: an engine that closed before it could reap an owner left the files to the
// next process.
func TestCloseReapsTheDead(t *testing.T) {
	dir := t.TempDir()
	_, die := deadOwner(t, dir, "a_")
	e, h := openHooked(t, dir)
	enter(t, e, arrival("b_")).Leave()
	h.fail(fs.ErrPermission)
	die()
	if err := e.dir.sync(false); err != nil {
		t.Fatal(err)
	}
	h.fail(nil)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if files := filesOf(t, dir); len(files) != 1 {
		t.Errorf("left in the lock directory: %v", files)
	}
}

// Bug: an owner file that could not be opened when it appeared was never opened again. So
// nobody waited for its owner when the directory was replaced.
func TestUnreadableOwnerIsMetLater(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "locks")
	e, h := openHooked(t, dir)
	h.fail(unix.EMFILE)
	_, die := deadOwner(t, dir, "a_")
	if err := e.dir.sync(false); err != nil {
		t.Fatal(err)
	}
	h.fail(nil)
	replace(t, dir)
	next := started(e, arrival("a_"))
	stillWaits(t, next, "the old directory's holder is still inside")
	die()
	get(t, next).Leave()
}

// Bug: the monitor's first sync could come before this process had the guard. It took an
// owner file that another process was about to write for an abandoned one, and removed
// it.
func TestYoungOwnerFileIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	other := openOS(t, dir)
	if err := other.lock(); err != nil {
		t.Fatal(err)
	}
	young := ownerFiles + "young"
	touch(t, dir, young)
	e := openAt(t, dir, 0)
	next := started(e, arrival("a_"))
	stillWaits(t, next, "the guard is taken")
	if _, err := os.Lstat(filepath.Join(dir, young)); err != nil {
		t.Error(err)
	}
	other.unlock()
	get(t, next).Leave()
	if _, err := os.Lstat(filepath.Join(dir, young)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left over under the guard: %v", err)
	}
}

// Bug: an unowned file with the name of the next ticket lost its place in the queue, and
// was then removed.
func TestNameTaken(t *testing.T) {
	dir := t.TempDir()
	moment := time.UnixMicro(1_700_000_000_000_000)
	e, err := OpenFile(dir, FileOptions{Clock: func() time.Time { return moment }})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	a := arrival("a_")
	taken := Ticket{Prefix: "a_", Stamp: uint64(moment.UnixMicro()), Client: a.Client}.Name()
	touch(t, dir, taken)
	waiting := started(e, a)
	stillWaits(t, waiting, "the unowned file is first")
	if err := os.Remove(filepath.Join(dir, taken)); err != nil {
		t.Fatal(err)
	}
	turn := get(t, waiting)
	defer turn.Leave()
	if turn.Token() != uint64(moment.UnixMicro())+1 {
		t.Errorf("token %d", turn.Token())
	}
}

// Bug: the same happened if the unowned file appeared while the ticket was made,
// especially if the ticket was taken out at that moment. And nobody waited for that file.
func TestNameTakenMeanwhile(t *testing.T) {
	for _, c := range []struct {
		name    string
		takeOut func(e *File, taken Ticket) error
		cause   error
	}{
		{"in the queue", func(*File, Ticket) error { return nil }, fs.ErrExist},
		{"superseded", func(e *File, taken Ticket) error {
			taken.Stamp++
			touch(t, e.path, taken.Name())
			return e.dir.sync(true)
		}, ErrSuperseded},
		{"evicted", func(e *File, taken Ticket) error { return e.Evict(t.Context(), "a_", taken.Stamp) }, ErrEvicted},
		{"directory replaced", func(e *File, _ Ticket) error { e.retire(e.dir); return nil }, errReplaced},
		{"engine closed", func(e *File, _ Ticket) error { return e.Close() }, ErrClosed},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			e := openAt(t, dir, 0)
			holder := enter(t, openAt(t, dir, 0), arrival("a_"))
			taken := ""
			e.open = func(path string, clock func() time.Time) (lockDir, error) {
				d, err := openLockDir(path, clock)
				return &intruder{d, func(name string) {
					if taken != "" {
						return
					}
					taken = name
					touch(t, dir, name)
					parsed, _ := ParseTicket(name)
					if err := c.takeOut(e, parsed); err != nil {
						t.Error(err)
					}
				}}, err
			}
			a := arrival("a_")
			a.MaxWaiting, a.DropOldest = 1, true
			if _, err := e.Enter(t.Context(), a); !errors.Is(err, c.cause) {
				t.Error(err)
			}
			wait.Until(t, "the batch is done", func() bool { e.mu.Lock(); defer e.mu.Unlock(); return !e.issuing })
			if _, err := os.Lstat(filepath.Join(dir, taken)); err != nil {
				t.Fatalf("the unowned file: %v", err)
			}
			holder.Leave()
			if c.cause != ErrClosed {
				stillWaits(t, started(e, arrival("a_")), "the unowned file is first")
			}
		})
	}
}

// intruder does something just before a ticket's file is made.
type intruder struct {
	lockDir
	before func(name string)
}

func (d *intruder) create(name string, stamp uint64, k ownerKind) error {
	d.before(name)
	return d.lockDir.create(name, stamp, k)
}

// Without hard links, each ticket is a separate file. Bug: the engine remembered each of
// them for ever.
func TestWithoutHardLinks(t *testing.T) {
	dir := t.TempDir()
	var d *osDir
	e := openAt(t, dir, 0)
	e.open = func(path string, clock func() time.Time) (lockDir, error) {
		opened, err := openLockDir(path, clock)
		if err != nil {
			return nil, err
		}
		d = opened.(*osDir)
		d.noLinks.Store(true)
		return d, nil
	}
	other := openAt(t, dir, 0)
	for range 20 {
		turn := enter(t, e, arrival("a_"))
		waiting := started(other, arrival("a_"))
		wait.Until(t, "the other waits", func() bool { return length(t, e, "a_") == 2 })
		turn.Leave()
		get(t, waiting).Leave()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.tickets) != 0 || len(d.ids) != 1 { // the owner file, for its ledger
		t.Errorf("remembers %d tickets, %d files", len(d.tickets), len(d.ids))
	}
	for _, name := range filesOf(t, dir) {
		if !strings.HasPrefix(name, ownFiles) {
			t.Errorf("left behind: %s", name)
		}
	}
}

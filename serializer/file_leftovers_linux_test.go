package serializer

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// clinging is a directory with files that cannot be removed. All of them look old.
type clinging struct {
	lockDir
	stays  string      // a file that stays for ever
	closed atomic.Bool // nothing can be removed
}

func (c *clinging) age(string) time.Duration { return time.Hour }

func (c *clinging) remove(name string) error {
	if name == c.stays || c.closed.Load() {
		return &StorageError{"removing lock file", name, unix.EPERM}
	}
	return c.lockDir.remove(name)
}

func (c *clinging) leave(name string, stamp uint64) error {
	if c.closed.Load() {
		return &StorageError{"removing lock file", name, unix.EACCES}
	}
	return c.lockDir.leave(name, stamp)
}

func openClinging(t testing.TB, dir, stays string, log *slog.Logger) (*File, *clinging) {
	t.Helper()
	c := &clinging{stays: stays}
	e, err := OpenFile(dir, FileOptions{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	e.open = func(path string, clock func() time.Time) (_ lockDir, err error) {
		c.lockDir, err = openLockDir(path, clock)
		return c, err
	}
	return e, c
}

// closesWhenIdle makes sure that the directory closes as if nobody had used it for a while.
func closesWhenIdle(t testing.TB, d *directory) {
	t.Helper()
	d.mu.Lock()
	d.idleSince = time.Now().Add(-lingerTime)
	d.mu.Unlock()
	select {
	case <-d.done:
	case <-time.After(patience):
		t.Fatal("the directory stays open")
	}
}

// Bug: a file that could never be removed blocked the removal of all later ones. The
// ticket of a finished request stayed, and other processes waited for it for ever. The
// directory stayed open, too.
func TestLeftoverThatStays(t *testing.T) {
	dir := t.TempDir()
	stays := Ticket{Prefix: "other_", Stamp: minStamp}.Name()
	e, c := openClinging(t, dir, stays, nil)
	touch(t, dir, stays)
	get(t, started(e, arrival("other_"))).Leave()
	turn := enter(t, e, arrival("a_"))
	c.closed.Store(true)
	turn.Leave()
	next := started(openAt(t, dir, 0), arrival("a_"))
	d := e.dir
	wait.Until(t, "the file could not be removed", d.leftovers.haveOurs)
	d.clearLeftovers()
	c.closed.Store(false)
	get(t, next).Leave()
	closesWhenIdle(t, d)
}

// A local ticket that others wait for keeps the directory open until it is gone.
func TestOwnLeftoverKeepsDirectoryOpen(t *testing.T) {
	e, c := openClinging(t, t.TempDir(), "", nil)
	turn := enter(t, e, arrival("a_"))
	c.closed.Store(true)
	turn.Leave()
	d := e.dir
	d.mu.Lock()
	d.idleSince = time.Now().Add(-lingerTime)
	d.mu.Unlock()
	if d.idle() {
		t.Error("the directory would close, and the ticket stay")
	}
	c.closed.Store(false)
	closesWhenIdle(t, d)
}

// Arrivals wait for a directory with the name of a ticket as for any unowned file.
// Nothing removes it, and it is given up with a log entry.
func TestDirectoryWithTicketName(t *testing.T) {
	dir := t.TempDir()
	log := new(logBuffer)
	e, _ := openClinging(t, dir, "", slog.New(slog.NewTextHandler(log, nil)))
	name := Ticket{Prefix: "a_", Stamp: minStamp}.Name()
	if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
		t.Fatal(err)
	}
	get(t, started(e, arrival("a_"))).Leave()
	wait.Until(t, "it is logged", func() bool {
		return strings.Contains(log.String(), "remove it by hand") && strings.Contains(log.String(), name)
	})
	d := e.dir
	d.mu.Lock()
	n := len(d.leftovers.ours)
	d.mu.Unlock()
	if n != 0 {
		t.Errorf("%d files are tried again", n)
	}
	closesWhenIdle(t, d)
	if _, err := os.Lstat(filepath.Join(dir, name)); errors.Is(err, fs.ErrNotExist) {
		t.Error("the directory was removed")
	}
}

package serializer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// unreadable is a directory with files that cannot be opened.
type unreadable struct {
	lockDir
	err  error
	bars func(name string) bool
}

func (u *unreadable) probe(name string) (ownerProbe, error) {
	if u.bars(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: u.err}
	}
	return u.lockDir.probe(name)
}

// openUnreadable opens an engine that cannot open some files, because of err.
func openUnreadable(t testing.TB, dir string, log *slog.Logger, err error, bars func(name string) bool) *File {
	t.Helper()
	e, openErr := OpenFile(dir, FileOptions{Log: log})
	if openErr != nil {
		t.Fatal(openErr)
	}
	t.Cleanup(func() { e.Close() })
	e.open = func(path string, clock func() time.Time) (lockDir, error) {
		d, openErr := openLockDir(path, clock)
		return &unreadable{d, err, bars}, openErr
	}
	return e
}

const leftoverOwner = ownerFiles + "leftover"

func isLeftoverOwner(name string) bool { return name == leftoverOwner }

// Bug: one owner file that could not be opened, and to which no ticket was linked, kept a
// replaced directory in use for ever. All requests waited for it until they timed out.
func TestUnreadableOwnerInReplacedDirectory(t *testing.T) {
	for name, replaceIt := range map[string]func(t *testing.T, dir string){
		"guard":     func(t *testing.T, dir string) { _ = os.Remove(filepath.Join(dir, guardFile)) },
		"directory": func(t *testing.T, dir string) { replace(t, dir) },
	} {
		for cause, err := range map[string]error{"permission": fs.ErrPermission, "damage": errors.New("owner file: pid")} {
			t.Run(name+"/"+cause, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "locks")
				e := openUnreadable(t, dir, nil, err, isLeftoverOwner)
				touch(t, dir, leftoverOwner)
				holder := enter(t, e, arrival("q_"))
				replaceIt(t, dir)
				holder.Leave()
				get(t, started(e, arrival("q_"))).Leave()
			})
		}
	}
}

// Bug: the list of an engine that works in a directory did not say whose owners are alive,
// so the command showed `yes` for all of them.
func TestAliveInOpenDirectory(t *testing.T) {
	dir := t.TempDir()
	unowned, barred := Ticket{Prefix: "unowned_", Stamp: minStamp}.Name(), Ticket{Prefix: "barred_", Stamp: minStamp}.Name()
	touch(t, dir, unowned)
	touch(t, dir, barred)
	e := openUnreadable(t, dir, nil, fs.ErrPermission, func(name string) bool { return name == barred })
	defer enter(t, e, arrival("local_")).Leave()
	defer enter(t, openAt(t, dir, 0), arrival("remote_")).Leave()
	wait.Until(t, "all are listed", func() bool {
		queues, err := e.Queues(t.Context())
		return err == nil && len(queues) == 4
	})
	for queue, want := range map[string]*bool{"local_": new(true), "remote_": new(true), "unowned_": new(false), "barred_": nil} {
		ticket := queueOf(t, e, queue).Tickets[0]
		if got := ticket.Alive; (got == nil) != (want == nil) || isTrue(got) != isTrue(want) {
			t.Errorf("%s is %+v; is its owner known: %t, and alive: %t", queue, ticket, want != nil, isTrue(want))
		}
	}
}

// If a ticket is linked to such a file, nobody can tell whether its owner is still
// inside. The requests behind it are refused with its name, as in a directory that is not
// replaced, and enter when it is gone. Bug: they waited until they timed out.
func TestUnreadableTicketInReplacedDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "locks")
	ticket := Ticket{Prefix: "other_", Stamp: minStamp}.Name()
	e := openUnreadable(t, dir, nil, fs.ErrPermission, func(name string) bool { return isLeftoverOwner(name) || name == ticket })
	touch(t, dir, leftoverOwner)
	if err := os.Link(filepath.Join(dir, leftoverOwner), filepath.Join(dir, ticket)); err != nil {
		t.Fatal(err)
	}
	enter(t, e, arrival("q_")).Leave()
	old := replace(t, dir)
	for range 2 {
		r := <-started(e, arrival("q_"))
		wantRefusal(t, r.err, ReasonStorage, fs.ErrPermission)
		if r.err == nil || !strings.Contains(r.err.Error(), ticket) {
			t.Errorf("the error does not name the file: %v", r.err)
		}
	}
	if err := os.Remove(filepath.Join(old, ticket)); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "a request enters", func() bool {
		turn, err := e.Enter(context.Background(), arrival("q_"))
		if err == nil {
			turn.Leave()
		}
		return err == nil
	})
}

// Bug: a ticket that could be opened but not read, such as a damaged one, kept all
// requests behind it waiting. They are refused, as behind a ticket that cannot be opened.
func TestDamagedTicket(t *testing.T) {
	dir := t.TempDir()
	ticket := Ticket{Prefix: "q_", Stamp: minStamp}.Name()
	if err := os.WriteFile(filepath.Join(dir, ticket), []byte(ownerMagic+"\npid: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := <-started(openAt(t, dir, 0), arrival("q_"))
	if reason := ReasonOf(r.err); reason != ReasonStorage || !strings.Contains(r.err.Error(), ticket) {
		t.Errorf("got %v, want a refusal for %s that names the file", r.err, ReasonStorage)
	}
}

// Bug: as long as the directory was open, the log repeated an error every second for an
// owner file that could not be opened. But nothing depended on that file.
func TestUnreadableOwnerIsLoggedOnce(t *testing.T) {
	dir := t.TempDir()
	log := new(logBuffer)
	e := openUnreadable(t, dir, slog.New(slog.NewTextHandler(log, nil)), fs.ErrPermission, isLeftoverOwner)
	e.tickTime = time.Millisecond
	touch(t, dir, leftoverOwner)
	turn := enter(t, e, arrival("q_"))
	wait.Until(t, "the error is logged", func() bool { return strings.Contains(log.String(), leftoverOwner) })
	d := e.dir
	for range 3 * time.Second / tickInterval { // as many ticks as there are in three seconds
		d.tick()
	}
	turn.Leave()
	if n := strings.Count(log.String(), "an owner file cannot be opened"); n != 1 {
		t.Errorf("the error is logged %d times", n)
	}
	d.syncing.Lock()
	defer d.syncing.Unlock()
	if len(d.syncer.found.owners) != 0 {
		t.Errorf("each sync tries to open %q", d.syncer.found.owners)
	}
}

// Bug: root had left an owner file in a service's directory that the service could not
// open. Once the directory was replaced, the file kept all requests from entering.
func TestRootsOwnerFileInReplacedDirectory(t *testing.T) {
	needRoot(t)
	dir := filepath.Join(dirOf(t, 0, 0o755), "locks")
	makeDir := func() {
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, alice, alice)); err != nil {
			t.Fatal(err)
		}
	}
	makeDir()
	if err := os.Chmod(plant(t, 0, "", dir, leftoverOwner), 0o600); err != nil {
		t.Fatal(err)
	}
	p := helper{UID: alice, GID: alice, Dir: dir, Queue: "a_", Again: true}.start(t)
	p.says(t, "open")
	p.says(t, "inside")
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	makeDir()
	if _, err := fmt.Fprintln(p.stdin); err != nil {
		t.Fatal(err)
	}
	p.says(t, "inside again")
	p.leave(t)
}

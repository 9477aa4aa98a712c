//go:build unix && !aix && !solaris

package lockfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/dir"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/guard"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/name"
)

// Somebody may move, remove or replace the guard or the whole directory. Then the guard that a
// process has locked is not the one at the path. If only the guard was replaced, the other one
// is opened, and everything goes on: the files are still the same.
//
// A directory that was replaced remains in use until its last ticket is out. Newcomers wait for
// that, without a ticket. Then each process moves to the directory to which the path leads.
//
// A caller that is inside may ask for a turn of another queue meanwhile, and all others wait
// for it. So its ticket is issued in the old directory: no process that knows the holder's
// ticket can move while that stands. Two checks are different. The guard must be the same in
// the directory, not at the path. And after the files were made, the holder's ticket must still
// stand: a process that finds it gone sees the new file. No lock is held while others wait.

// errRemoved is why a caller that is inside one queue is refused by another one.
var errRemoved = errors.New("the directory was removed while the request was inside one of its other queues; it works again when that has left")

// appendAgain issues the tickets that append did not, if the guard or directory was replaced.
func (s *Store) appendAgain(ctx context.Context, tickets []*serializer.Ticket, err error) error {
	for errors.Is(err, dir.ErrReplaced) {
		if err = s.exchange(); err != nil {
			break
		}
		err = s.current.Load().append(ctx, tickets)
	}
	if d := s.current.Load(); errors.Is(err, dir.ErrReplaced) && d.holdTurns(tickets) {
		err = d.appendHere(ctx, tickets)
	}
	if errors.Is(err, dir.ErrReplaced) || errors.Is(err, errMissing) {
		s.report(slog.LevelWarn, "no tickets are issued at the moment", "error", err)
		err = fmt.Errorf("%w: %w", serializer.ErrNotNow, err)
	}
	return err
}

// holdTurns reports whether the callers of all tickets are inside, in queues of this directory.
func (d *directory) holdTurns(tickets []*serializer.Ticket) bool {
	return !slices.ContainsFunc(tickets, func(t *serializer.Ticket) bool {
		h := t.Holder()
		return h == nil || !d.own.State(h.Ref, h.Number).Stands()
	})
}

// appendHere issues tickets in a directory that was replaced. In one that was removed, no file
// can be made, so other processes could not know of the tickets.
func (d *directory) appendHere(ctx context.Context, tickets []*serializer.Ticket) error {
	err := d.exchangeGuard()
	if errors.Is(err, fs.ErrNotExist) {
		err = d.failed("issuing tickets in", "", errRemoved)
	}
	if err != nil {
		return err
	}
	defer d.guard.Close()
	d.guard.Stay(func() bool { return d.holdTurns(tickets) })
	return d.append(ctx, tickets)
}

// moveOn opens the directory that has taken the place of this one, if no tickets are being
// issued, and no process has one here. A directory that is missing may come back.
func (s *Store) moveOn() error {
	sys := s.current.Load().sys
	if _, err := os.Lstat(sys.Path()); err != nil || sys.Here() || !s.issuing.TryLock() {
		return nil
	}
	defer s.issuing.Unlock()
	if err := s.exchange(); !errors.Is(err, dir.ErrReplaced) {
		return err
	}
	return nil
}

// exchange opens the guard or the directory at the path again. The caller holds issuing.
func (s *Store) exchange() error {
	d := s.current.Load()
	err := d.exchangeGuard()
	if d.sys.Here() {
		return err
	}
	defer d.guard.Close()
	return d.leave()
}

// leave moves to the other directory. Another process may hold the guard here, and be stopped.
// It takes back what it issues from now on, unless somebody puts this directory back. So the
// directory is checked again when the other one is open.
func (d *directory) leave() error {
	d.syncing.Lock()
	defer d.syncing.Unlock()
	if err := d.checkEmptyLocked(); err != nil {
		return err
	}
	fresh, err := d.openDirectory()
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", dir.ErrReplaced, err) // it was replaced again
	}
	if err != nil {
		return err
	}
	if err := d.checkEmptyLocked(); err != nil {
		fresh.closeLocked()
		return err
	}
	// Numbers go on above those of here. Its listing ends the pauses that are gone.
	last, _ := d.guard.Last()
	fresh.last, fresh.pauses, d.pauses = max(d.last, last), d.pauses, fresh.pauses
	d.current.Store(fresh)
	d.closeLocked()
	return nil
}

// checkEmptyLocked returns an error if there are or may be tickets in the directory.
func (d *directory) checkEmptyLocked() error {
	if err := cmp.Or(d.syncLocked(), d.auditLocked()); err != nil {
		return err
	}
	standing := len(d.remote) > 0
	for _, t := range d.local {
		standing = standing || d.own.State(t.Ref, t.Number).Stands()
	}
	if standing {
		return d.failed("waiting for those who have a ticket in", "", dir.ErrReplaced)
	}
	return nil
}

// exchangeGuard opens the guard that has taken the place of the one that is open.
func (d *directory) exchangeGuard() error {
	d.syncing.Lock()
	defer d.syncing.Unlock()
	g, err := guard.Open(d.sys)
	if err != nil {
		return d.failed("opening", name.Guard, err)
	}
	d.guard.Close()
	d.guard, d.unsure = g, true
	return nil
}

//go:build unix && !aix && !solaris

package lockfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/dir"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/name"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/owner"
)

// errUnaccounted is why no tickets are issued at the moment.
var errUnaccounted = errors.New("another program has removed a lock file or damaged an owner file, and its owner has not mended that yet")

// errRemoved is why a caller that is inside one queue is refused by another one.
var errRemoved = errors.New("the directory was removed while the request was inside one of its other queues; it works again when that has left")

// Append implements [serializer.Store].
func (s *Store) Append(ctx context.Context, tickets []*serializer.Ticket) error {
	s.issuing.Lock()
	defer s.issuing.Unlock()
	for {
		joined, err := s.current.Load().append(ctx, tickets)
		tickets = tickets[joined:]
		if errors.Is(err, dir.ErrReplaced) {
			if err = s.exchange(); err == nil {
				continue
			}
		}
		if d := s.current.Load(); errors.Is(err, dir.ErrReplaced) && d.holdTurns(tickets) {
			err = d.appendHere(ctx, tickets)
		}
		if errors.Is(err, dir.ErrReplaced) || errors.Is(err, errUnaccounted) {
			s.report(slog.LevelWarn, "no tickets are issued at the moment", "error", err)
			err = fmt.Errorf("%w: %w", serializer.ErrNotNow, err)
		}
		return err
	}
}

// holdTurns reports whether the callers of all tickets are inside, in queues of this directory.
func (d *directory) holdTurns(tickets []*serializer.Ticket) bool {
	return !slices.ContainsFunc(tickets, func(t *serializer.Ticket) bool {
		h := t.Holder()
		return h == nil || !d.own.State(h.Ref, h.Number).Stands()
	})
}

// appendHere issues tickets in a directory that was replaced. In one that was removed, no file
// can be made, so that the others would not know of the tickets.
func (d *directory) appendHere(ctx context.Context, tickets []*serializer.Ticket) error {
	err := d.exchangeGuard()
	if errors.Is(err, fs.ErrNotExist) {
		err = d.failed("issuing tickets in", "", errRemoved)
	}
	if err != nil {
		return err
	}
	defer d.guard.Close()
	d.guard.Stay()
	_, err = d.append(ctx, tickets)
	return err
}

// append issues tickets under the guard. It returns how many have joined their queues.
func (d *directory) append(ctx context.Context, tickets []*serializer.Ticket) (joined int, err error) {
	if err := d.guard.Lock(ctx); err != nil {
		return 0, d.failed("locking", name.Guard, err)
	}
	defer d.guard.Unlock()
	d.syncing.Lock()
	defer d.syncing.Unlock()
	defer d.wakeLocked()
	made, err := d.issueLocked(tickets)
	// Whoever takes a newer guard from here on sees the files that were made.
	checkErr := d.guard.Check()
	if checkErr == nil && d.guard.Stays() && !d.holdTurns(tickets[:made]) {
		checkErr = dir.ErrReplaced
	}
	for _, t := range tickets[:made] {
		if checkErr == nil && d.events.Joined(t) {
			continue
		}
		if err := d.withdraw(t); checkErr != nil && err != nil {
			checkErr = err // it cannot be numbered again
		} else if checkErr != nil {
			delete(d.local, t.Key)
		}
	}
	if checkErr != nil {
		d.guard.Close() // no other file is made before it is opened again
		return 0, d.failed("checking", name.Guard, checkErr)
	}
	return made, err
}

// issueLocked numbers tickets and makes their files. It returns how many were made. The
// caller has the guard, here and below.
func (d *directory) issueLocked(tickets []*serializer.Ticket) (made int, err error) {
	if err := d.syncLocked(); err != nil {
		return 0, err
	}
	if err := d.auditLocked(); err != nil {
		return 0, err
	}
	if err := d.numberLocked(tickets); err != nil {
		return 0, err
	}
	for i, t := range tickets {
		if err := d.makeLocked(t); err != nil {
			return i, d.failed("making a lock file in", "", err) // also for the rest of the batch
		}
	}
	return len(tickets), nil
}

// auditLocked checks that each owner can be asked, and that each ticket that is out is
// known. The directory may have been listed while the file of one was missing. Its place is
// not known then, so nobody may be admitted behind it.
func (d *directory) auditLocked() error {
	if d.blind != nil || !d.unaudited {
		return d.blind
	}
	known := make(map[uint64]*owner.Remote, len(d.remote))
	for _, r := range d.remote {
		known[r.Number] = cmp.Or(r.by, known[r.Number]) // somebody may have renamed a file
	}
	for _, o := range *d.owners.Load() {
		if o.Dead() {
			continue // its tickets are taken out
		}
		standing, _, err := o.Numbers()
		if err != nil || slices.ContainsFunc(standing, func(n uint64) bool { return known[n] != o }) {
			return d.failed("issuing tickets in", "", fmt.Errorf("%w (%s)", errUnaccounted, o.Process.Name))
		}
	}
	d.unaudited = false
	return nil
}

// numberLocked gives tickets their numbers and names, and records the last number. That
// comes before the files are made: a number without a file does no harm.
func (d *directory) numberLocked(tickets []*serializer.Ticket) error {
	last := d.last
	if d.unsure {
		recorded, err := d.guard.Last(d.lastIssued)
		if err != nil {
			return d.failed("reading", name.Guard, err)
		}
		last = max(last, recorded)
	}
	now := uint64(max(d.clock().UnixMicro(), name.MinNumber))
	for _, t := range tickets {
		client, _ := netip.ParseAddrPort(t.Client)
		for taken := true; taken; _, taken = d.remote[t.Key] { // another program may have such a file
			last = max(now, last+1)
			t.Key = Name{Prefix: t.Queue, Number: last, Client: client}.String()
		}
		t.Number, t.Owner, t.Arrived = last, d.self, time.UnixMicro(int64(last))
	}
	if last > name.MaxNumber {
		return d.failed("numbering tickets in", "", fmt.Errorf("the clock or the last number, %d, is beyond the year 2286", last))
	}
	if err := d.guard.Record(last); err != nil {
		return d.failed("writing", name.Guard, err)
	}
	d.last, d.unsure = last, false
	return nil
}

// makeLocked makes the file of a ticket. The word comes first.
func (d *directory) makeLocked(t *serializer.Ticket) (err error) {
	if t.Ref, err = d.own.Put(t.Number, t.Key, t.Rule); err != nil {
		return err
	}
	d.local[t.Key] = t
	if err = d.linkLocked(t.Key); err != nil {
		d.own.Set(t.Ref, t.Number, owner.Gone)
		delete(d.local, t.Key)
	}
	return err
}

// linkLocked links a ticket's file to the owner file. That is replaced if somebody has
// removed it, or has put there what cannot be linked to, or if it has too many links.
func (d *directory) linkLocked(file string) error {
	err := d.sys.Link(d.own.Name, file)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EMLINK) {
		if err = d.own.Renew(); err == nil {
			err = d.sys.Link(d.own.Name, file)
		}
	}
	return err
}

// Remove implements [serializer.Store].
func (s *Store) Remove(t *serializer.Ticket) { _ = s.current.Load().withdraw(t) }

// withdraw removes the file of a ticket. Until the file is gone, the word says Leaving. If
// it cannot be removed, the monitor tries again.
func (d *directory) withdraw(t *serializer.Ticket) error {
	d.own.Set(t.Ref, t.Number, owner.Leaving)
	err := d.unlink(t.Key)
	if err == nil {
		d.own.Set(t.Ref, t.Number, owner.Gone)
	}
	return err
}

// retryRemovalsLocked tries again to remove the files of tickets that are over.
func (d *directory) retryRemovalsLocked() {
	for _, t := range d.local {
		if d.own.State(t.Ref, t.Number) == owner.Leaving {
			_ = d.withdraw(t)
		}
	}
}

// unlink removes a file. Whoever calls it tries again later if it fails.
func (d *directory) unlink(file string) error {
	err := d.sys.Unlink(file)
	if err != nil {
		d.report(slog.LevelError, "a file could not be removed; trying again", "path", d.pathOf(file), "error", err)
	}
	return err
}

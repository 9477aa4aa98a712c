//go:build unix && !aix && !solaris

package lockfile

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/name"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/owner"
)

// Append implements [serializer.Store].
func (s *Store) Append(ctx context.Context, tickets []*serializer.Ticket) error {
	s.issuing.Lock()
	defer s.issuing.Unlock()
	err := s.current.Load().append(ctx, tickets)
	if err != nil {
		err = s.appendAgain(ctx, tickets, err) // see replaced.go
	}
	return err
}

// append issues tickets under the guard, and reports those that other processes see: none if the
// error is [dir.ErrReplaced] or errMissing.
func (d *directory) append(ctx context.Context, tickets []*serializer.Ticket) error {
	if err := d.guard.Lock(ctx); err != nil {
		return d.failed("locking", name.Guard, err)
	}
	defer d.guard.Unlock()
	d.syncing.Lock()
	defer d.syncing.Unlock()
	defer d.wakeLocked()
	made, err := d.issueLocked(tickets)
	// A process that takes a newer guard after this check sees the files that were made.
	if err := d.guard.Check(); err != nil {
		return d.takeBackLocked(tickets[:made], err)
	}
	for _, t := range tickets[:made] {
		if !d.events.Joined(t) {
			_ = d.withdraw(t)
		}
	}
	return err
}

// issueLocked numbers tickets and makes their files. It returns how many were made. The
// caller has the guard, here and below.
func (d *directory) issueLocked(tickets []*serializer.Ticket) (made int, err error) {
	if err := d.syncLocked(); err != nil {
		return 0, err
	}
	if err := d.auditLocked(); err != nil { // see repair.go
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

// numberLocked gives tickets their numbers and names, and records the last number. That
// comes before the files are made. So a process that dies in between leaves a number without
// a file, which no event reports: with other processes, the record is always read.
func (d *directory) numberLocked(tickets []*serializer.Ticket) error {
	last := d.last
	if d.unsure || len(*d.owners.Load()) > 0 {
		recorded, err := d.guard.Last()
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

// makeLocked writes the word of a ticket, and then makes its file: a link to the owner file.
func (d *directory) makeLocked(t *serializer.Ticket) (err error) {
	if t.Ref, err = d.own.Put(t.Number, t.Key, t.Rule); err != nil {
		return err
	}
	d.local[t.Key] = t
	if err = d.own.Link(t.Key); err != nil {
		d.own.Set(t.Ref, t.Number, owner.Gone)
		delete(d.local, t.Key)
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

// takeBackLocked removes the files of tickets that were not reported. No other file is made
// until the guard is opened again.
func (d *directory) takeBackLocked(made []*serializer.Ticket, why error) error {
	for _, t := range made {
		if err := d.withdraw(t); err != nil {
			why = err // it cannot be numbered again
			continue
		}
		delete(d.local, t.Key)
	}
	d.guard.Close()
	return d.failed("checking", name.Guard, why)
}

//go:build unix && !aix && !solaris

package lockfile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/dir"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/name"
)

// A person or another program may edit the directory. Nobody enters because of that, and nobody
// loses a place. The protocol calls this file, and replaced.go, where it says so. An edit, and
// what becomes of it:
//
//	a lock file is removed     The ticket keeps its place, because its word stands. Its owner
//	                           puts the file back (putBackLocked). Until then, a process that
//	                           has not seen the file issues no ticket (auditLocked).
//	a lock file is made        A file that no owner has a word for, such as one of Apache's
//	                           mod_serializer, has its place in the queue. It counts as
//	                           abandoned five minutes after its last change (checkUnownedLocked).
//	a lock file is renamed     The old name was removed, and the new one made.
//	an owner file is removed   Its owner makes another one (checkOwnLocked). Until then, other
//	                           processes find its owner by the tickets (openOwnerLocked).
//	an owner file is damaged   Its owner repairs it. Until then, its tickets keep their places,
//	                           and processes that have to ask it issue no ticket.
//	an owner file is copied    No process has locked the copy, so it is removed.
//	an owner file cannot be    No ticket is issued, and the log names the file
//	opened                     (noteUnreadableLocked).
//	the guard is damaged       Numbers go on above those that this process has seen.
//	the guard or the directory is moved, removed or replaced: see replaced.go.
//	a file is replaced by a link, a pipe or a directory: nothing is written to it or through
//	                           it, and an error or the log names it.

// errMissing is why no tickets are issued at the moment.
var errMissing = errors.New("somebody has removed the lock file of a ticket, or has damaged the owner file; " +
	"the process puts it back, unless it is stopped: then continue it (SIGCONT) or end it")

// auditLocked checks that each owner can be asked, and that each ticket that an owner says
// stands is in its queue. While the directory was listed, the file of one may have been missing.
// Its place is not known then, so no ticket may be issued behind it.
func (d *directory) auditLocked() error {
	if d.unreadable != nil || d.audited {
		return d.unreadable
	}
	known := make(map[uint64]bool, len(d.remote))
	for _, r := range d.remote {
		known[r.Number] = known[r.Number] || r.by != nil // somebody may have renamed a file
	}
	for _, o := range *d.owners.Load() {
		if o.Dead() {
			continue // its tickets are taken out
		}
		standing, err := o.Standing()
		if err != nil || slices.ContainsFunc(standing, func(n uint64) bool { return !known[n] }) {
			return d.failed("issuing tickets in", "", fmt.Errorf("waiting for %s: %w", o.Process.Name, errMissing))
		}
	}
	d.audited = true
	return nil
}

// putBackLocked makes the file of a local ticket again. If the ticket is over in the meantime,
// its caller may have found no file to remove.
func (d *directory) putBackLocked(t *serializer.Ticket) {
	d.report(slog.LevelWarn, "a lock file was removed by another program; it is put back", "path", d.pathOf(t.Key))
	if err := d.own.Link(t.Key); err != nil && !errors.Is(err, fs.ErrExist) {
		d.report(slog.LevelError, "a lock file could not be put back; trying again", "path", d.pathOf(t.Key), "error", err)
		d.watch.Distrust() // the next listing will find that it is missing
	}
	if !d.own.State(t.Ref, t.Number).Stands() {
		_ = d.unlink(t.Key)
	}
}

// checkOwnLocked repairs the owner file of this process.
func (d *directory) checkOwnLocked() {
	if len(d.local) == 0 {
		d.own.Trim(1)
	}
	path := d.pathOf(d.own.Name)
	damage, err := d.own.Repair()
	switch {
	case err != nil:
		d.report(slog.LevelError, "the owner file could not be repaired; trying again", "path", path, "error", err)
	case damage != nil:
		d.report(slog.LevelWarn, "the owner file is repaired", "path", path, "reason", damage)
	}
}

// noteUnreadableLocked notes why an owner file cannot be opened. The directory is listed again
// at the next occasion. Until each owner can be asked, no ticket is issued.
func (d *directory) noteUnreadableLocked(file string, err error) {
	isOwner := strings.HasPrefix(file, name.Owners)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case errors.Is(err, dir.ErrNotOurs) && isOwner:
		d.report(slog.LevelWarn, "a file has the name of an owner file, but is none; remove it", "path", d.pathOf(file))
	case isOwner || !errors.Is(err, dir.ErrNotOurs) && !errors.Is(err, fs.ErrPermission): // otherwise, it is another program's
		d.unreadable = d.failed("opening owner file", file, err)
		d.watch.Distrust()
		d.report(slog.LevelWarn, "an owner file cannot be opened; arrivals are refused until it can be, or is removed", "path", d.pathOf(file), "error", err)
	}
}

// checkOwnersLocked returns why an owner cannot be asked, because its file is damaged or
// cannot be opened.
func (d *directory) checkOwnersLocked() error {
	err := d.unreadable
	for _, o := range *d.owners.Load() {
		err = cmp.Or(err, o.Check())
	}
	return err
}

// unownedTime is the age at which an unowned file counts as abandoned. Only tests change it.
var unownedTime = 5 * time.Minute

// unowned is the owner of a file that comes from another program or a person. Its rule is not
// known, and is taken to be the strictest.
var unowned = &serializer.Owner{Name: "not a ticket of Orderly"}

// identifyLocked finds out what files are that no owner has a word for, and puts their tickets
// into the queues. Files that have vanished again by now, while all owners can be asked, were
// tickets that are over.
func (d *directory) identifyLocked(files []*remoteTicket) {
	allAsked := d.checkOwnersLocked() == nil
	for _, r := range files {
		if allAsked && r.vanished {
			continue
		}
		d.openOwnerLocked(r.Key) // the name of its owner's file may have been removed
		info, err := d.sys.Info(r.Key)
		if d.claimLocked(r) || errors.Is(err, fs.ErrNotExist) && d.checkOwnersLocked() == nil {
			continue
		}
		r.Owner = unowned
		if err == nil {
			r.date(info)
		}
		d.enterLocked(r)
	}
}

// date counts the age of an unowned file from its last change.
func (r *remoteTicket) date(info dir.Info) {
	r.since, r.changed = time.Now().Add(min(time.Until(info.Changed), 0)), info.Changed
}

// checkUnownedLocked takes out an unowned file that is gone or too old.
func (d *directory) checkUnownedLocked(r *remoteTicket) {
	info, err := d.sys.Info(r.Key)
	if err == nil && r.by == nil && info.Links == 1 && !info.Changed.Equal(r.changed) { // a link to an owner's file changes with its tickets
		r.date(info)
	}
	switch age := time.Since(r.since); {
	case errors.Is(err, fs.ErrNotExist):
		d.dropLocked(r)
	case age > unownedTime:
		d.report(slog.LevelWarn, "a lock file that belongs to no process of Orderly counts as abandoned", "path", d.pathOf(r.Key), "after", unownedTime)
		_ = d.unlink(r.Key)
		d.dropLocked(r)
	case r.by == nil && len(d.local) > 0: // otherwise, its owner's words are damaged
		d.report(slog.LevelWarn, "waiting for a lock file that belongs to no process of Orderly; remove it if nothing needs it",
			"path", d.pathOf(r.Key), "age", age.Round(time.Second), "abandoned_after", unownedTime)
	}
}

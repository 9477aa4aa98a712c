//go:build unix && !aix && !solaris

package lockfile

import (
	"errors"
	"io/fs"
	"log/slog"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/dir"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/name"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/owner"
)

// remoteTicket is a ticket in a queue that is not one of this process's.
type remoteTicket struct {
	serializer.Ticket
	by       *owner.Remote // nil if that is not known
	since    time.Time     // when an owner had a word for it last, or when its file was changed
	changed  time.Time     // the same change, by the file system's clock
	vanished bool          // its file has vanished again before it was identified
}

// unownedTime is the age at which an unowned file counts as abandoned. Only tests change it.
var unownedTime = 5 * time.Minute

// unowned is the owner of a file that comes from another program or a person. Nobody can
// tell its rule, which is taken to be the strictest.
var unowned = &serializer.Owner{Name: "not a ticket of Orderly"}

// noteAppearedLocked notes a file that has appeared.
func (d *directory) noteAppearedLocked(file string) {
	if n, err := name.Parse(file); err == nil && d.remote[file] == nil {
		d.unsure = true
		t := serializer.Ticket{Queue: n.Prefix, Number: n.Number, Client: n.Client.String(), Key: file, Arrived: time.UnixMicro(int64(n.Number))}
		d.appeared[file] = &remoteTicket{Ticket: t, since: time.Now()}
	}
}

// identifyLocked finds out what a file is that no owner has a word for, and puts its ticket
// into the queue. Some are gone by now: their tickets are over.
func (d *directory) identifyLocked(r *remoteTicket) {
	d.openOwnerLocked(r.Key) // the name of its owner's file may have been removed
	info, err := d.sys.Info(r.Key)
	if d.claimLocked(r) || errors.Is(err, fs.ErrNotExist) && d.unaskedLocked() == nil {
		return
	}
	r.Owner = unowned
	if err == nil {
		r.date(info)
	}
	d.enterLocked(r)
}

// date counts the age of an unowned file from its last change.
func (r *remoteTicket) date(info dir.Info) {
	r.since, r.changed = time.Now().Add(min(time.Until(info.Changed), 0)), info.Changed
}

// claimLocked reports whether an owner has a word for a ticket. It puts the ticket into its
// queue, unless it is over.
func (d *directory) claimLocked(r *remoteTicket) bool {
	said := find(*d.owners.Load(), r.Number, r.Key)
	if said.Stands() {
		r.by, r.Owner, r.Rule = said.by, said.by.Process, said.rule
		d.last = max(d.last, r.Number)
		d.enterLocked(r)
	}
	return said.by != nil
}

func (d *directory) enterLocked(r *remoteTicket) {
	d.remote[r.Key] = r
	d.events.Appeared(&r.Ticket)
}

func (d *directory) dropLocked(r *remoteTicket) {
	delete(d.remote, r.Key)
	d.events.Vanished(&r.Ticket)
}

// noteVanishedLocked notes that a file is gone. The owner says Leaving before it removes
// one. If it does not, or if an owner cannot be asked, somebody else may have removed the
// file. The ticket keeps its place then.
func (d *directory) noteVanishedLocked(file string) {
	if r := d.appeared[file]; r != nil {
		r.vanished = true
	} else if r := d.remote[file]; r != nil {
		if said, err := d.askLocked(r); !said.Stands() && err == nil {
			d.dropLocked(r)
		}
	}
}

// checkTicketsLocked checks what no event reports about the tickets of others.
func (d *directory) checkTicketsLocked() {
	for _, r := range d.remote {
		switch said, err := d.askLocked(r); {
		case err != nil: // its owner may be one that cannot be asked
		case said.Stands():
			r.by, r.since = said.by, time.Now()
		case said.by != nil: // it is over, but the owner cannot remove the file
			d.dropLocked(r)
		default:
			d.checkUnownedLocked(r)
		}
	}
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

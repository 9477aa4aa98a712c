//go:build unix && !aix && !solaris

package lockfile

import (
	"errors"
	"io/fs"
	"log/slog"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/name"
)

// remoteTicket is a file in the form of a ticket that is not one of this process's.
type remoteTicket struct {
	serializer.Ticket
	session string    // of its owner; empty if that is not known
	out     bool      // it is in its queue
	missing bool      // the file is gone, but the owner says that the ticket is out
	since   time.Time // since when an unowned file has been as it is; zero if an owner has a word for it
	logged  bool
}

// unownedTime is the age at which an unowned file counts as abandoned. Only tests change it.
var unownedTime = 5 * time.Minute

// unowned is the owner of a file that comes from another program or a person. Nobody can
// tell its rule, which is taken to be the strictest.
var unowned = &serializer.Owner{Name: "not a ticket of Orderly"}

// noteAppearedLocked notes a file that has appeared.
func (d *directory) noteAppearedLocked(file string) {
	if r := d.remote[file]; r != nil {
		r.missing = false
		return
	}
	n, err := name.Parse(file)
	if err != nil {
		return
	}
	if d.unsure = true; n.Number <= uint64(time.Now().UnixMicro()) {
		d.last = max(d.last, n.Number) // harmless, even if it is another program's
	}
	r := &remoteTicket{Ticket: serializer.Ticket{Queue: n.Prefix, Number: n.Number, Client: n.Client, Key: file, Arrived: n.Time()}}
	d.remote[file] = r
	if !d.claimLocked(r) {
		d.pending.unknown = append(d.pending.unknown, r)
	}
}

// claimLocked puts a ticket into its queue if an owner says that it is out.
func (d *directory) claimLocked(r *remoteTicket) bool {
	said, _ := d.find(r.Number)
	if said.by != nil {
		r.session, r.Owner, r.Rule = said.by.Session(), said.by.shown, said.rule
	}
	if !said.Stands() {
		return false
	}
	d.last = max(d.last, r.Number)
	d.enterLocked(r)
	return true
}

// enterLocked puts a ticket into its queue.
func (d *directory) enterLocked(r *remoteTicket) {
	r.out = true
	d.others.Add(1)
	d.events.Appeared(&r.Ticket)
}

// identifyLocked finds out what a file is for which no owner had a word. Most files are
// gone: their tickets are over.
func (d *directory) identifyLocked(r *remoteTicket) {
	if d.remote[r.Key] != r || r.out {
		return
	}
	info, err := d.sys.Info(r.Key)
	if errors.Is(err, fs.ErrNotExist) {
		d.noteVanishedLocked(r.Key) // the event may come too late
		return
	}
	if info.Links > 1 {
		d.openOwnerLocked(r.Key) // its owner's file may have been removed
	}
	if d.claimLocked(r) || r.session != "" {
		return // in the second case, its owner is about to remove it
	}
	for _, o := range *d.owners.Load() {
		if o.ID == info.ID {
			r.session = o.Session() // if that dies, the file goes, too
		}
	}
	d.enterUnownedLocked(r)
}

func (d *directory) enterUnownedLocked(r *remoteTicket) {
	r.Owner, r.since = unowned, time.Now().Add(-d.sys.Age(r.Key))
	d.enterLocked(r)
}

// noteVanishedLocked notes that a file is gone. The owner says Leaving before it removes
// one. If it does not, or if an owner cannot be asked, somebody else may have removed the
// file. The ticket keeps its place then.
func (d *directory) noteVanishedLocked(file string) {
	r := d.remote[file]
	if r == nil {
		return
	}
	d.unsure = true
	said, err := d.find(r.Number)
	left := said.by != nil && !said.Stands() || !r.out && r.session != ""
	if left || said.by == nil && err == nil && !d.isBarredLocked(r.session) {
		d.dropLocked(r)
		return
	}
	r.missing, d.pending.reap = true, true
	if !r.out && !d.claimLocked(r) {
		d.enterUnownedLocked(r)
	}
}

// dropLocked forgets a ticket whose file is gone.
func (d *directory) dropLocked(r *remoteTicket) {
	d.leaveLocked(r)
	delete(d.remote, r.Key)
}

// leaveLocked takes a ticket out of its queue.
func (d *directory) leaveLocked(r *remoteTicket) {
	if r.out {
		r.out = false
		d.others.Add(-1)
		d.events.Vanished(&r.Ticket)
	}
}

// checkTicketsLocked checks what no event reports about the tickets of others.
func (d *directory) checkTicketsLocked() {
	for _, r := range d.remote {
		said, err := d.find(r.Number)
		switch {
		case said.Stands():
			r.session, r.since = said.by.Session(), time.Time{}
		case err != nil || d.isBarredLocked(r.session): // its owner may be one that cannot be asked
		case r.missing:
			d.dropLocked(r)
		case said.by != nil: // the owner cannot remove the file
			d.leaveLocked(r)
		case r.since.IsZero(): // it has another ticket's number, or words were damaged for a moment
			r.since = time.Now()
		default:
			d.checkUnownedLocked(r)
		}
	}
}

// checkUnownedLocked removes an unowned file that is too old.
func (d *directory) checkUnownedLocked(r *remoteTicket) {
	age := time.Since(r.since)
	switch {
	case age > unownedTime:
		d.report(slog.LevelWarn, "a lock file that belongs to no process of Orderly counts as abandoned", "path", d.pathOf(r.Key), "after", unownedTime)
		_ = d.unlink(r.Key)
		d.leaveLocked(r)
	case !r.logged && d.out.Load() > 0:
		r.logged = true
		d.report(slog.LevelWarn, "waiting for a lock file that belongs to no process of Orderly; remove it if nothing needs it",
			"path", d.pathOf(r.Key), "age", age.Round(time.Second), "abandoned after", unownedTime)
	}
}

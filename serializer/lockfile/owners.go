//go:build unix && !aix && !solaris

package lockfile

import (
	"cmp"
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/dir"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/name"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/owner"
	"github.com/orderly-http/caddy-orderly/serializer/queue"
)

// claim is what an owner says about a ticket.
type claim struct {
	owner.State
	rule queue.Rule
	by   *owner.Remote // nil if no owner says anything
}

// find returns what the owners say about a ticket.
func (d *directory) find(number uint64, file string) claim {
	for _, o := range *d.owners.Load() {
		if state, rule := o.Find(number, file); state != owner.Gone {
			return claim{state, rule, o}
		}
	}
	return claim{}
}

// unaskedLocked returns why an owner cannot be asked, because its file is damaged or cannot
// be opened. It is called after find has found nothing.
func (d *directory) unaskedLocked() error {
	err := d.blind
	for _, o := range *d.owners.Load() {
		err = cmp.Or(err, o.Check())
	}
	return err
}

// askLocked returns what the owner of a ticket says about it. If that is not known, all are
// asked; the error may then mean that an owner's file cannot be opened.
func (d *directory) askLocked(r *remoteTicket) (said claim, err error) {
	if r.by == nil {
		if said = d.find(r.Number, r.Key); said.by == nil {
			err = d.unaskedLocked()
		}
		return said, err
	}
	said.by = r.by
	if said.State, said.rule = r.by.Find(r.Number, r.Key); said.State == owner.Gone {
		err = r.by.Check()
	}
	return said, err
}

// noteOwnerLocked notes a change of an owner file.
func (d *directory) noteOwnerLocked(c dir.Change, file string) {
	known := d.ownerLocked(file)
	switch {
	case file == d.own.Name():
		if c != dir.Closed { // another file may be in its place
			d.checkOwnLocked()
		}
	case c == dir.Appeared && known != nil:
		if err := known.Update(); err != nil {
			d.blindLocked(file, err)
		}
	case c == dir.Appeared:
		d.openOwnerLocked(file)
	case c == dir.Closed:
		d.reaped = time.Time{} // its lock is about to be released
	}
}

// ownerLocked returns the other process whose owner file has a name.
func (d *directory) ownerLocked(file string) *owner.Remote {
	for _, o := range *d.owners.Load() {
		if o.Name() == file {
			return o
		}
	}
	return nil
}

// openOwnerLocked gets to know an owner by its file, or by a ticket that is linked to it.
func (d *directory) openOwnerLocked(file string) {
	o, err := owner.OpenRemote(d.sys, file)
	switch {
	case err == nil && (o.Name() == d.own.Name() || d.ownerLocked(o.Name()) != nil):
		o.Close()
	case err == nil:
		d.owners.Store(new(append(slices.Clone(*d.owners.Load()), o)))
	case !errors.Is(err, dir.ErrNotOurs):
		d.blindLocked(file, err)
	case strings.HasPrefix(file, name.Owners):
		d.report(slog.LevelWarn, "a file has the name of an owner file, but is none; remove it", "path", d.pathOf(file))
	}
}

// blindLocked notes that an owner file cannot be opened. The directory is listed again at
// the next occasion. Until each owner can be asked, no ticket is issued.
func (d *directory) blindLocked(file string, err error) {
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	d.blind = d.failed("opening owner file", file, err)
	d.watch.Distrust()
	d.report(slog.LevelWarn, "an owner file cannot be opened; arrivals are refused until it can be, or is removed", "path", d.pathOf(file), "error", err)
}

// checkOwnLocked replaces the owner file of this process if somebody has damaged it.
func (d *directory) checkOwnLocked() {
	why := d.own.Check()
	if why == nil {
		return
	}
	d.report(slog.LevelWarn, "the owner file is replaced", "path", d.pathOf(d.own.Name()), "reason", why)
	if err := d.own.Renew(); err != nil {
		d.report(slog.LevelError, "the owner file could not be replaced; trying again", "path", d.pathOf(d.own.Name()), "error", err)
	}
}

// lastIssued returns the last number that the other processes which are alive have issued.
func (d *directory) lastIssued() (last uint64) {
	for _, o := range *d.owners.Load() {
		if dead, err := o.Dead(); !dead && err == nil {
			_, of, _ := o.Numbers()
			last = max(last, of)
		}
	}
	return last
}

// reapLocked takes out the tickets of all dead owners.
func (d *directory) reapLocked() {
	for _, o := range *d.owners.Load() {
		dead, err := o.Dead()
		if err != nil {
			d.report(slog.LevelError, "an owner file could not be checked", "path", d.pathOf(o.Name()), "error", err)
		} else if dead && !d.livesLocked(o) {
			d.reapOwnerLocked(o)
		}
	}
}

// livesLocked reports whether somebody holds the lock of a ticket's file, although nobody holds
// that of its owner's file. Then somebody has put a copy in the place of the owner's file, which
// the owner will mend, or the process is ending at this moment.
func (d *directory) livesLocked(o *owner.Remote) bool {
	for _, r := range d.remote {
		if r.by == o && !owner.IsFree(d.sys, r.Key) {
			return true
		}
	}
	return false
}

// reapOwnerLocked takes out the tickets of a dead owner, and then removes their files, also
// of those that are not known. The owner file goes last: whoever finds a ticket needs it. The
// owner may have replaced it unnoticed. Then the other one is opened, and reaped next.
func (d *directory) reapOwnerLocked(dead *owner.Remote) {
	taken := make(map[string]bool) // their words may be damaged
	for _, r := range d.remote {
		if r.by == dead || d.isOf(dead, r.Key, r.Number) {
			taken[r.Key] = true
			d.dropLocked(r)
		}
	}
	if len(taken) > 0 {
		d.report(slog.LevelWarn, "a process ended without leaving its queues; its tickets are taken out",
			"path", d.sys.Path(), "owner", dead.Process.Name, "tickets", len(taken))
	}
	files, err := d.sys.List()
	for _, file := range files {
		if n, parseErr := name.Parse(file); taken[file] || parseErr == nil && d.isOf(dead, file, n.Number) {
			err = cmp.Or(err, d.unlink(file))
		}
	}
	if info, statErr := d.sys.Info(dead.Name()); err == nil && statErr == nil && dead.Has(info) {
		err = d.unlink(dead.Name())
	}
	if err != nil {
		return // the next tick tries again
	}
	d.owners.Store(new(slices.DeleteFunc(slices.Clone(*d.owners.Load()), func(o *owner.Remote) bool { return o == dead })))
	dead.Close()
	d.openOwnerLocked(dead.Name())
}

// isOf reports whether a ticket's file belongs to an owner. It does even if the owner has
// no word for it, because that was damaged.
func (d *directory) isOf(o *owner.Remote, file string, number uint64) bool {
	if said := d.find(number, file); said.by != nil {
		return said.by == o
	}
	info, err := d.sys.Info(file)
	return err == nil && o.Has(info)
}

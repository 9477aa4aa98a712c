//go:build unix && !aix && !solaris

package lockfile

import (
	"cmp"
	"log/slog"
	"slices"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/name"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/owner"
)

// claim is what an owner says about a ticket.
type claim struct {
	owner.State
	rule serializer.Rule
	by   *owner.Remote // nil if no owner says anything
}

// find returns what the first owner that has a word for a ticket says about it.
func find(owners []*owner.Remote, number uint64, file string) claim {
	for _, o := range owners {
		if state, rule, ok := o.Find(number, file); ok {
			return claim{state, rule, o}
		}
	}
	return claim{}
}

// askLocked returns what the owner of a ticket says about it. If that is not known, all are
// asked. If none says anything, the error is why one could not be asked.
func (d *directory) askLocked(r *remoteTicket) (said claim, err error) {
	owners, check := *d.owners.Load(), d.checkOwnersLocked
	if r.by != nil {
		owners, check = []*owner.Remote{r.by}, r.by.Check
	}
	if said = find(owners, r.Number, r.Key); said.by == nil {
		if err = check(); err == nil { // see repair.go; perhaps it was repaired just now
			said = find(owners, r.Number, r.Key)
		}
	}
	return said, err
}

// openOwnerLocked opens an owner file, by its name or by a ticket that is linked to it, unless it is
// open.
func (d *directory) openOwnerLocked(file string) {
	o, err := owner.OpenRemote(d.sys, file)
	if err != nil {
		d.noteUnreadableLocked(file, err) // see repair.go
		return
	}
	owners := *d.owners.Load()
	isOpen := d.own.Has(o.ID) || slices.ContainsFunc(owners, func(other *owner.Remote) bool { return other.ID == o.ID })
	switch {
	case o.Abandoned():
		_ = d.unlink(file)
	case !isOpen:
		d.owners.Store(new(append(slices.Clone(owners), o)))
		return
	}
	o.Close()
}

// reapInterval is how often the store checks that the other owners are alive, while a ticket of
// this process may wait for them.
const reapInterval = 20 * time.Millisecond

// reapLocked takes out the tickets of all dead owners, if it is time to check.
func (d *directory) reapLocked() {
	if time.Since(d.reaped) < reapInterval {
		return
	}
	d.reaped = time.Now()
	for _, o := range *d.owners.Load() {
		if o.Dead() {
			d.checkTicketsLocked() // it may have left its queues before
			d.reapOwnerLocked(o)
		}
	}
}

// reapOwnerLocked takes out the tickets of a dead owner, and then removes their files, also of
// those that are not known. The owner file goes last: a process that finds a ticket needs it.
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
	if info, statErr := d.sys.Info(dead.Name); err == nil && statErr == nil && info.ID == dead.ID {
		err = d.unlink(dead.Name)
	}
	if err == nil { // otherwise, the next tick tries again
		d.owners.Store(new(slices.DeleteFunc(slices.Clone(*d.owners.Load()), func(o *owner.Remote) bool { return o == dead })))
		dead.Close()
	}
}

// isOf reports whether a ticket's file belongs to an owner: the owner has a word for it, or it
// is a link to the owner's file.
func (d *directory) isOf(o *owner.Remote, file string, number uint64) bool {
	if said := find(*d.owners.Load(), number, file); said.by != nil {
		return said.by == o
	}
	info, err := d.sys.Info(file)
	return err == nil && info.ID == o.ID
}

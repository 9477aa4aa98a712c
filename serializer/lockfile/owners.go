//go:build unix && !aix && !solaris

package lockfile

import (
	"cmp"
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"strings"

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

// find returns what the first owner that has a word for a ticket says about it.
func find(owners []*owner.Remote, number uint64, file string) claim {
	for _, o := range owners {
		if state, rule, ok := o.Find(number, file); ok {
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
// asked. If none says anything, the error is why one could not be asked.
func (d *directory) askLocked(r *remoteTicket) (said claim, err error) {
	owners, check := *d.owners.Load(), d.unaskedLocked
	if r.by != nil {
		owners, check = []*owner.Remote{r.by}, r.by.Check
	}
	if said = find(owners, r.Number, r.Key); said.by == nil {
		err = check()
	}
	return said, err
}

// openOwnerLocked gets to know an owner by its file, or by a ticket that is linked to it. The
// owner may have replaced the file. Another one, such as a copy, is removed.
func (d *directory) openOwnerLocked(file string) {
	o, err := owner.OpenRemote(d.sys, file)
	if err != nil {
		d.blindLocked(file, err)
		return
	}
	var known *owner.Remote
	for _, other := range *d.owners.Load() {
		if other.Name == o.Name {
			known = other
		}
	}
	switch {
	case o.Abandoned():
		_ = d.unlink(file)
	case known != nil && (o.Name == file || known.Dead()):
		known.Update(o)
	case known == nil && o.Name != d.own.Name:
		d.owners.Store(new(append(slices.Clone(*d.owners.Load()), o)))
		return
	}
	o.Close()
}

// blindLocked notes why an owner file cannot be opened. The directory is listed again at
// the next occasion. Until each owner can be asked, no ticket is issued.
func (d *directory) blindLocked(file string, err error) {
	isOwner := strings.HasPrefix(file, name.Owners)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case errors.Is(err, dir.ErrNotOurs) && isOwner:
		d.report(slog.LevelWarn, "a file has the name of an owner file, but is none; remove it", "path", d.pathOf(file))
	case isOwner || !errors.Is(err, dir.ErrNotOurs) && !errors.Is(err, fs.ErrPermission): // otherwise, it is another program's
		d.blind = d.failed("opening owner file", file, err)
		d.watch.Distrust()
		d.report(slog.LevelWarn, "an owner file cannot be opened; arrivals are refused until it can be, or is removed", "path", d.pathOf(file), "error", err)
	}
}

// checkOwnLocked replaces the owner file of this process if somebody has damaged it.
func (d *directory) checkOwnLocked() {
	if len(d.local) == 0 {
		d.own.Trim(1)
	}
	why := d.own.Check()
	if why == nil {
		return
	}
	d.report(slog.LevelWarn, "the owner file is replaced", "path", d.pathOf(d.own.Name), "reason", why)
	if err := d.own.Renew(); err != nil {
		d.report(slog.LevelError, "the owner file could not be replaced; trying again", "path", d.pathOf(d.own.Name), "error", err)
	}
}

// lastIssued returns the last number that the other processes which are alive have issued.
func (d *directory) lastIssued() (last uint64) {
	for _, o := range *d.owners.Load() {
		if !o.Dead() {
			_, of, _ := o.Numbers()
			last = max(last, of)
		}
	}
	return last
}

// reapLocked takes out the tickets of all dead owners.
func (d *directory) reapLocked() {
	for _, o := range *d.owners.Load() {
		if o.Dead() {
			d.checkTicketsLocked() // it may have left its queues, and the directory
			d.reapOwnerLocked(o)
		}
	}
}

// reapOwnerLocked takes out the tickets of a dead owner, and then removes their files, also of
// those that are not known. The owner file goes last: whoever finds a ticket needs it. The
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
	if info, statErr := d.sys.Info(dead.Name); err == nil && statErr == nil && dead.Has(info) {
		err = d.unlink(dead.Name)
	}
	if err != nil {
		return // the next tick tries again
	}
	d.owners.Store(new(slices.DeleteFunc(slices.Clone(*d.owners.Load()), func(o *owner.Remote) bool { return o == dead })))
	dead.Close()
	d.openOwnerLocked(dead.Name)
}

// isOf reports whether a ticket's file belongs to an owner. It does even if the owner has
// no word for it, because that was damaged.
func (d *directory) isOf(o *owner.Remote, file string, number uint64) bool {
	if said := find(*d.owners.Load(), number, file); said.by != nil {
		return said.by == o
	}
	info, err := d.sys.Info(file)
	return err == nil && o.Has(info)
}

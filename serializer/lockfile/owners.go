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

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/dir"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/name"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/owner"
	"github.com/orderly-http/caddy-orderly/serializer/queue"
)

// remoteOwner is another process that works in the directory.
type remoteOwner struct {
	*owner.Remote
	shown *serializer.Owner
}

// claim is what an owner says about a ticket.
type claim struct {
	owner.Word
	rule queue.Rule
	by   *remoteOwner // nil if no owner says anything
}

// errRemoved is why the owner file is made again.
var errRemoved = errors.New("another program has removed the owner file")

// find returns what the owners say about a ticket. The error means that no owner has a word
// for it, but that one cannot be asked, because its file is damaged.
func (d *directory) find(number uint64) (c claim, err error) {
	for _, o := range *d.owners.Load() {
		word, rule, findErr := o.Find(number)
		if word != 0 {
			return claim{word, rule, o}, nil
		}
		err = cmp.Or(err, findErr)
	}
	return claim{}, err
}

// noteOwnerLocked notes a change of an owner file.
func (d *directory) noteOwnerLocked(c dir.Change, file string) {
	own := file == d.own.Name()
	switch {
	case c == dir.Appeared && !own:
		d.openOwnerLocked(file)
	case c == dir.Vanished && own:
		d.renewLocked(errRemoved)
	case c == dir.Vanished:
		delete(d.barred, file)
	case c == dir.Closed:
		for _, o := range *d.owners.Load() {
			if o.Name() == file {
				o.awaitEnd()
				d.pending.reap = true
			}
		}
	}
}

// openOwnerLocked gets to know an owner by its file, or by a ticket that is linked to it. A
// file that cannot be opened is barred, and the monitor tries again.
func (d *directory) openOwnerLocked(file string) {
	delete(d.barred, file)
	r, err := owner.OpenRemote(d.sys, file)
	switch {
	case err == nil:
		d.addOwnerLocked(r)
	case errors.Is(err, owner.ErrNoOwner) && !strings.HasPrefix(file, name.Owners): // not a ticket of ours
	case errors.Is(err, owner.ErrNoOwner):
		d.report(slog.LevelWarn, "a file has the name of an owner file, but is none; remove it", "path", d.pathOf(file))
	case errors.Is(err, fs.ErrNotExist): // an earlier file of its owner says the same
	default:
		d.barred[file] = err
		d.report(slog.LevelWarn, "an owner file cannot be opened; arrivals are refused until it can be, or is removed", "path", d.pathOf(file), "error", err)
	}
}

// isBarredLocked reports whether a file of an owner cannot be opened. An empty session is
// that of an owner that is not known.
func (d *directory) isBarredLocked(session string) bool {
	for file := range d.barred {
		if session == "" || strings.HasPrefix(file, name.Owners+session+"-") {
			return true
		}
	}
	return false
}

// addOwnerLocked adds an owner, or replaces its earlier file.
func (d *directory) addOwnerLocked(r *owner.Remote) {
	owners := slices.Clone(*d.owners.Load())
	i := slices.IndexFunc(owners, func(o *remoteOwner) bool { return o.Session() == r.Session() })
	switch {
	case r.Session() == d.own.Session(), i >= 0 && !owners[i].OlderThan(r.Name()):
		r.Close()
		return
	case i >= 0:
		defer owners[i].Close()
		owners = slices.Delete(owners, i, i+1)
	}
	owners = append(owners, &remoteOwner{Remote: r, shown: &serializer.Owner{Name: r.Process, Alive: true}})
	d.owners.Store(&owners)
	d.pending.reap = true // it may be dead
}

// If an owner has closed its file and still has its lock, it is tried again this often, at
// this interval: the event comes shortly before the lock is released.
const (
	deathRetries = 20
	deathPause   = 100 * time.Microsecond
)

// awaitEnd waits for a moment until an owner that has closed its file has ended.
func (o *remoteOwner) awaitEnd() {
	for range deathRetries {
		if dead, err := o.Dead(); dead || err != nil {
			return
		}
		time.Sleep(deathPause)
	}
}

// reapLocked takes out the tickets of all dead owners. An owner may have made another file
// before it gave up the one that is known. The event of that is there then.
func (d *directory) reapLocked() {
	var dead []*remoteOwner
	for _, o := range *d.owners.Load() {
		is, err := o.Dead()
		if err != nil {
			d.report(slog.LevelError, "an owner file could not be checked", "path", d.pathOf(o.Name()), "error", err)
		} else if is {
			dead = append(dead, o)
		}
	}
	if dead == nil || d.readLocked() != nil {
		return
	}
	for _, o := range dead {
		if slices.Contains(*d.owners.Load(), o) && !d.isBarredLocked(o.Session()) {
			d.reapOwnerLocked(o)
		}
	}
}

// reapOwnerLocked takes out the tickets of a dead owner. Numbers are never used again, so
// no other process can have a file of such a name. The owner file goes last: whoever finds
// a ticket needs it.
func (d *directory) reapOwnerLocked(o *remoteOwner) {
	taken, removed := 0, true
	for file, r := range d.remote {
		if r.session != o.Session() {
			continue
		}
		if r.out {
			taken++
		}
		d.leaveLocked(r)
		if d.unlink(file) == nil {
			delete(d.remote, file)
		} else {
			removed = false
		}
	}
	if taken > 0 {
		d.report(slog.LevelWarn, "a process ended without leaving its queues; its tickets are taken out",
			"path", d.sys.Path(), "owner", o.Process, "tickets", taken)
	}
	if !removed || d.unlink(o.Name()) != nil {
		return // the next tick tries again
	}
	owners := slices.DeleteFunc(slices.Clone(*d.owners.Load()), func(other *remoteOwner) bool { return other == o })
	d.owners.Store(&owners)
	o.Close()
}

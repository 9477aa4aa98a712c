//go:build unix && !aix && !solaris

package lockfile

import (
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/fileowner"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/dir"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/guard"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/name"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/owner"
)

// directory is an open lock directory, and what is known of it.
type directory struct {
	*Store
	sys   *dir.Dir
	watch *dir.Watch
	own   *owner.Own
	guard *guard.Guard // changes only while Store.issuing and syncing are held

	owners atomic.Pointer[[]*owner.Remote]

	syncing    sync.Mutex // guards the rest; held while events are reported
	closed     bool
	last       uint64    // the greatest number that is known to have been issued
	unsure     bool      // the guard may have recorded a greater one
	audited    bool      // since the last listing, all tickets that stand were in their queues
	unreadable error     // why an owner file cannot be opened
	reaped     time.Time // when it was last checked that the other owners are alive

	local    map[string]*serializer.Ticket // by file name, until an event says that the file is gone
	remote   map[string]*remoteTicket      // by file name; the engine has them in its queues
	appeared map[string]*remoteTicket      // by file name; still to be identified
	pauses   map[string]name.Pause         // by file name
	evicts   []string                      // files that ask for evictions
}

// openDirectory opens the directory to which the path leads, and makes it if it is missing.
func (s *Store) openDirectory() (_ *directory, err error) {
	sys, err := dir.Make(s.path)
	if err != nil {
		return nil, failed("opening lock directory", s.path, "", err)
	}
	d := &directory{
		Store: s, sys: sys, unsure: true,
		local:  make(map[string]*serializer.Ticket),
		remote: make(map[string]*remoteTicket), appeared: make(map[string]*remoteTicket),
		pauses: make(map[string]name.Pause),
	}
	d.owners.Store(new([]*owner.Remote))
	if d.guard, err = guard.Open(sys); err != nil {
		sys.Close()
		return nil, d.failed("opening", name.Guard, err)
	}
	d.watch = sys.Watch()
	if d.own, err = owner.Make(sys, s.clock()); err == nil {
		err = sys.TryLink(d.own.Name, name.New+name.Random()) // as a ticket is made
	}
	if err != nil {
		d.removeGuard()
		d.closeLocked()
		return nil, d.failed("trying out a lock file in", "", err)
	}
	return d, nil
}

// pathOf is the path of a file, for people.
func (d *directory) pathOf(file string) string { return filepath.Join(d.sys.Path(), file) }

// unlink removes a file. If that fails, the caller tries again later.
func (d *directory) unlink(file string) error {
	err := d.sys.Unlink(file)
	if err != nil {
		d.report(slog.LevelError, "a file could not be removed; trying again", "path", d.pathOf(file), "error", err)
	}
	return err
}

// failed describes an error for callers and people.
func (d *directory) failed(doing, file string, err error) error {
	return failed(doing, d.sys.Path(), file, err)
}

// failed describes an error, and says what helps if this user may not use the directory.
func failed(doing, path, file string, err error) error {
	err = fileowner.Explain(err, path, serializer.ReservedPrefix+"*")
	return &serializer.StorageError{Op: doing, Path: filepath.Join(path, file), Err: err}
}

// closeLocked frees what the directory holds. It reports nothing: the engine would keep a
// ticket that has just appeared.
func (d *directory) closeLocked() {
	d.retryRemovalsLocked()
	d.closed = true
	for _, o := range *d.owners.Swap(new([]*owner.Remote)) {
		o.Close()
	}
	d.own.Close()
	d.watch.Close()
	d.guard.Close()
	d.sys.Close()
}

//go:build unix && !aix && !solaris

package lockfile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
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

	syncing   sync.Mutex // guards the rest; held while events are reported
	closed    bool
	last      uint64    // the greatest number that is known to have been issued
	unsure    bool      // the guard may have recorded a greater one
	unaudited bool      // there may be tickets that are out, but not known
	blind     error     // why an owner file cannot be opened
	reaped    time.Time // when it was last checked that the other owners are alive

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
		d.close()
		return nil, d.failed("trying out a lock file in", "", err)
	}
	return d, nil
}

// pathOf is the path of a file, for people.
func (d *directory) pathOf(file string) string { return filepath.Join(d.sys.Path(), file) }

// failed describes an error for callers and people.
func (d *directory) failed(doing, file string, err error) error {
	return failed(doing, d.sys.Path(), file, err)
}

// failed describes an error, and says what helps if this user may not use the directory.
func failed(doing, path, file string, err error) error {
	err = fileowner.Explain(err, path, serializer.ReservedPrefix+"*")
	return &serializer.StorageError{Op: doing, Path: filepath.Join(path, file), Err: err}
}

// A directory that is moved or replaced remains in use until its last ticket is out. All
// who have one finish there, and also take their turns of other queues there if they are
// inside. Newcomers wait for that, without a ticket. Then the directory to which the path leads
// by now takes its place. See [Store] for why that is safe.

// exchange opens the guard or the directory at the path again. The caller holds issuing.
func (s *Store) exchange() error {
	d := s.current.Load()
	err := d.exchangeGuard()
	if d.sys.Here() {
		return err
	}
	defer d.guard.Close()
	return d.leave()
}

// leave moves to the other directory. The guard's holder may be stopped. What it issues here
// from now on, it withdraws, unless somebody puts this one back. So that is checked twice.
func (d *directory) leave() error {
	d.syncing.Lock()
	defer d.syncing.Unlock()
	if err := d.checkEmptyLocked(); err != nil {
		return err
	}
	fresh, err := d.openDirectory()
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", dir.ErrReplaced, err) // it was replaced again
	}
	if err != nil {
		return err
	}
	if err := d.checkEmptyLocked(); err != nil {
		fresh.close()
		return err
	}
	// Numbers go on above those of here. Its listing ends the pauses that are gone.
	last, _ := d.guard.Last(d.lastIssued)
	fresh.last, fresh.pauses, d.pauses = max(d.last, last), d.pauses, fresh.pauses
	d.current.Store(fresh)
	d.closeLocked()
	return nil
}

// checkEmptyLocked returns an error if there are or may be tickets in the directory.
func (d *directory) checkEmptyLocked() error {
	if err := cmp.Or(d.syncLocked(), d.auditLocked()); err != nil {
		return err
	}
	standing := len(d.remote) > 0
	for _, t := range d.local {
		standing = standing || d.own.State(t.Ref, t.Number).Stands()
	}
	if standing {
		return d.failed("waiting for those who have a ticket in", "", dir.ErrReplaced)
	}
	return nil
}

// exchangeGuard opens the guard that has taken the place of the one that is open.
func (d *directory) exchangeGuard() error {
	d.syncing.Lock()
	defer d.syncing.Unlock()
	g, err := guard.Open(d.sys)
	if err != nil {
		return d.failed("opening", name.Guard, err)
	}
	d.guard.Close()
	d.guard, d.unsure = g, true
	return nil
}

// close frees what the directory holds. It reports nothing: the engine would keep a ticket
// that has just appeared.
func (d *directory) close() {
	d.syncing.Lock()
	defer d.syncing.Unlock()
	d.closeLocked()
}

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

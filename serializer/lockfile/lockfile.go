//go:build unix && !aix && !solaris

package lockfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/internal/throttle"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/dir"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/name"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/owner"
)

// Store is a [serializer.Store] on a directory. [Open] makes one.
//
// # How it works
//
// Ticket. Whoever holds the lock (flock) of the guard, a file that is never deleted, issues
// tickets. A number is the time in microseconds, but greater than the last one, which the
// guard records. So a ticket that exists is smaller than every ticket still to come,
// whatever the clock does. A ticket is a hard link to its process's owner file.
//
// Owner. A process holds the lock of its owner file while it lives. If another process
// gets that lock, the owner is dead, and its tickets are reaped. The file has the
// number, state and rule of each ticket; see package owner. They are written before the
// ticket's file is made, say Leaving before it is removed, and Gone afterwards. So a
// file that disappears while its owner says Waiting or Inside was removed by somebody
// else. The ticket keeps its place everywhere, and its owner puts the file back.
// Whoever lists the directory in between never sees that file. So it issues no ticket
// until it knows every ticket that an owner says is out.
//
// Following. The directory's events are read under the guard before tickets are numbered,
// so all smaller tickets are reported before. While a ticket of this process may wait for
// another process, the monitor listens. It also checks what no event reports.
//
// Replacement. The guard is checked after the files were made and before they are reported.
// If it was replaced, they are withdrawn. Otherwise, whoever takes a newer guard sees them.
// A process moves to the directory that has taken the place of its own when no ticket stands
// in its own. Until then, its newcomers get no ticket. But a caller that is inside may ask for
// a turn of another queue, and all wait for it. So its ticket is issued in the old directory,
// in which all others still are: no process that knows the holder's ticket can move while
// that stands. The ticket is issued as any other, under the guard. Two checks are different.
// Whether the guard is the same is asked of the directory, not of the path. And after the
// files were made, the holder's ticket must still stand: whoever finds that one gone sees the
// new one. No lock is held while others wait, since those others may need it to go on.
//
// # Locks
//
// They are taken in this order: Store.issuing, the guard, directory.syncing. An owner file
// has a lock of its own, which is a leaf. Events are reported while
// syncing is held; see [serializer.Events].
//
// # What was rejected
//
// The whole queue in shared memory: a process that dies while changing it leaves it broken. See
// docs/how-it-works.md for more, and docs/reliability.md for what is not promised.
type Store struct {
	path   string
	clock  func() time.Time
	log    *slog.Logger
	lines  throttle.Throttle[string] // limits repeated log messages
	self   *serializer.Owner         // this process
	events serializer.Events

	issuing sync.Mutex // held while tickets are issued, and while the directory is exchanged; not while others wait
	current atomic.Pointer[directory]

	nudge   chan struct{} // wakes the monitor if it waits for the next tick
	closing chan struct{}
	made    []string       // the directories that Open has made, the deepest first
	unused  atomic.Bool    // see Discard
	running sync.WaitGroup // the monitor
}

// Open makes a store on a directory. It makes the directory if it is missing. It fails
// with a [*serializer.StorageError] if the store could not work there: if the directory is
// not writable, or is on a file system without locks or hard links, or on a network. It
// does not wait for other processes.
func Open(path string, o Options) (*Store, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("finding lock directory: %w", err)
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	s := &Store{
		path: path, clock: o.Clock, log: cmp.Or(o.Log, slog.New(slog.DiscardHandler)), self: &serializer.Owner{Name: owner.Self(), Alive: true},
		nudge:   make(chan struct{}, 1),
		closing: make(chan struct{}),
	}
	s.made = missing(path)
	d, err := s.openDirectory()
	if err != nil {
		s.removeMade()
		return nil, err
	}
	s.current.Store(d)
	return s, nil
}

// Path returns the directory that was given to [Open], as an absolute path.
func (s *Store) Path() string { return s.path }

// Check implements [serializer.Store].
func (s *Store) Check(queue string) error { return name.CheckPrefix(queue) }

// Follow implements [serializer.Store].
func (s *Store) Follow(events serializer.Events) {
	s.events = events
	s.running.Go(s.monitor)
}

// SetInside implements [serializer.Store].
func (s *Store) SetInside(t *serializer.Ticket, _ bool) {
	s.current.Load().own.Set(t.Ref, t.Number, owner.Inside)
}

// Inside implements [serializer.Store].
func (s *Store) Inside(t *serializer.Ticket) bool {
	return find(*s.current.Load().owners.Load(), t.Number, t.Key).State == owner.Inside
}

// Sync implements [serializer.Store]. It also fails if nobody could take a ticket, because
// what is at the path cannot be opened, or because this user may not use the directory.
func (s *Store) Sync(context.Context) error {
	err := s.moveOn()
	d := s.current.Load()
	if denied := unix.Access(s.path, unix.W_OK|unix.X_OK); err == nil && denied != nil && d.sys.Here() {
		err = failed("using lock directory", s.path, "", denied)
	}
	return cmp.Or(err, d.sync())
}

// moveOn opens the directory that has taken the place of this one, if nobody is issuing
// tickets or has one here. One that is missing may come back.
func (s *Store) moveOn() error {
	sys := s.current.Load().sys
	if _, err := os.Lstat(sys.Path()); err != nil || sys.Here() || !s.issuing.TryLock() {
		return nil
	}
	defer s.issuing.Unlock()
	if err := s.exchange(); !errors.Is(err, dir.ErrReplaced) {
		return err
	}
	return nil
}

// Close implements [serializer.Store].
func (s *Store) Close() error {
	close(s.closing)
	s.running.Wait()
	d := s.current.Load()
	_ = d.sync() // removes the requests that concern only tickets that are over
	if s.unused.Load() && d.removeGuard() {
		defer s.removeMade()
	}
	d.close()
	return nil
}

// report logs a message that may recur, at most once a second. It returns at once: locks
// are held, and the log's handler may call the engine.
func (s *Store) report(level slog.Level, message string, attrs ...any) {
	s.lines.Do(message, func(count int) {
		go s.log.Log(context.Background(), level, message, append(attrs, "count", count)...)
	})
}

// Interface guard
var _ serializer.Store = (*Store)(nil)

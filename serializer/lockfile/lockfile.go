//go:build unix && !aix && !solaris

package lockfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/internal/throttle"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/dir"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile/internal/owner"
)

// Store is a [serializer.Store] on a directory. [Open] makes one.
//
// # The protocol
//
// Read these files in the order in which a ticket lives. They assume that a process can stop or
// die between any two steps. What other programs may do to the directory is the concern of
// repair.go and replaced.go.
//
//   - issue.go: a ticket gets its number, its word and its file; later, the file is removed
//   - internal/guard: the lock under which tickets are issued, and the last number
//   - internal/owner: the words, by which a process says which of its tickets stand
//   - follow.go: other processes learn that a ticket has come, and that it is over
//   - reap.go: the tickets of a process that has died are taken out
//   - monitor.go: the goroutine that does both while nobody arrives
//
// # Why it is safe
//
// Guard. A process issues tickets while it holds the lock (flock) of the guard. That file is
// never deleted where a ticket was issued; see discard.go. A number is the time in
// microseconds, but greater than the last one, which the guard records. So a ticket that
// exists is smaller than every ticket still to come, whatever the clock does.
//
// Owner. A process holds the lock of its owner file while it lives. If another process gets
// that lock, the owner is dead. A ticket is a hard link to the owner file: one system call.
//
// Word. The owner file has the number, state and rule of each ticket. They are written before
// the ticket's file is made. The state is Leaving before the file is removed, and Gone
// afterwards. So a ticket whose word says Waiting or Inside is not over, even if its file
// disappears.
//
// Following. A process reads the directory's events (inotify) under the guard, before it
// numbers tickets. So it reports all smaller tickets before its own. While a ticket of this
// process may wait for another process, the monitor reads the events. It also checks what no
// event reports.
//
// Check. When the files are made, the guard must still be the file at its path. Otherwise,
// another process may hold another guard. Then the files are removed again, and not reported.
//
// # Locks
//
// They are taken in this order: Store.issuing, the guard, directory.syncing. An owner file
// has a lock of its own, and no other lock is taken while it is held. Events are reported
// while syncing is held; see [serializer.Events].
//
// # What was rejected
//
// The whole queue in shared memory: a process that dies while changing it leaves it broken. See
// docs/how-it-works.md for more, and docs/reliability.md for what is not promised.
type Store struct {
	path   string // that was given to Open
	opened string // the directory that it led to then
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

// Open makes a store on a directory. It makes the directory if it is missing. Processes that
// open the same directory share its queues.
//
// In a directory that everybody may write to, such as /tmp, the queues of each user lie in a
// directory of his own: two users do not wait for each other. [Store.Path] says where. Users that
// share queues need a directory of a common group (mode 2770). A process can have some 50,000 tickets
// in a directory.
//
// Turns are never lost, so a context of [serializer.Turn] ends only by an eviction or by Close. Do
// not delete the directory: a process that starts afterwards knows nothing of those inside.
//
// The error is a [*serializer.StorageError] if the store could not work there: if the
// directory is not writable, or is on a file system without locks or hard links, or on a
// network. Open does not wait for other processes.
func Open(path string, o Options) (*Store, error) {
	if path == "" {
		return nil, errors.New("opening lock directory: the path is empty; name a directory, which is made if it is missing")
	}
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
	s.made = dir.Missing(dir.OwnIn(path))
	d, err := s.openDirectory()
	for tries := 0; errors.Is(err, fs.ErrNotExist) && tries < 10; tries++ { // a process may be discarding it
		d, err = s.openDirectory()
	}
	if err != nil {
		s.removeMade()
		return nil, err
	}
	if own := dir.OwnIn(path); d.sys.Path() != own && len(s.made) > 0 {
		s.made = s.made[1:] // it is not needed
	}
	s.opened = d.sys.Path()
	s.current.Store(d)
	return s, nil
}

// Path returns the directory in which the queues are, as an absolute path: the one that was
// given to [Open], or this user's own in it.
func (s *Store) Path() string { return s.opened }

// Follow implements [serializer.Store].
func (s *Store) Follow(events serializer.Events) {
	if s.events != nil {
		panic("lockfile: a second engine on a store: open another store on the directory, or share the engine")
	}
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

// Sync implements [serializer.Store]. It also fails if no ticket could be issued, because what
// is at the path cannot be opened, or because this user may not use the directory.
func (s *Store) Sync(context.Context) error {
	err := s.moveOn()
	d := s.current.Load()
	if denied := unix.Access(s.path, unix.W_OK|unix.X_OK); err == nil && denied != nil && d.sys.Here() {
		err = failed("using lock directory", s.path, "", denied)
	}
	return cmp.Or(err, d.sync())
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
	d.syncing.Lock()
	defer d.syncing.Unlock()
	d.closeLocked()
	return nil
}

// report logs a message that may recur, at most once a second. It returns at once: locks
// are held, and the log's handler may call the engine.
func (s *Store) report(level slog.Level, message string, attrs ...any) {
	s.lines.Do(message, func(count int) {
		go s.log.Log(context.Background(), level, message, append(attrs, "count", count)...)
	})
}

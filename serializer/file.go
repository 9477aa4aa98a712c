package serializer

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/throttle"
)

// File keeps queues as lock files in a directory. Any number of processes of
// one machine may share the directory, in containers, too. The names of the
// files are those of Apache's mod_serializer; see [Ticket].
//
// # How it works
//
// Ticket. One control file, the guard, is never deleted. The process that holds its
// lock (flock) gives out tickets: the number is the time in microseconds, but at
// least one more than the last number, which the guard file records. So a
// ticket that exists is smaller than every ticket still to come, whatever the
// clock does. After a power failure, numbers go on above a bound that was on the disk
// before they came near it; see file_reserve.go. One goroutine takes the guard for all
// that arrive meanwhile. It alone blocks if another process is stopped while that holds
// the guard. The requests wait for the goroutine, and end by their own timeouts.
//
// Owner. A process keeps an owner file, locked for as long as it works in the
// directory. A ticket is a hard link to it. Anyone can open a ticket and try
// the lock: if it is granted, the owner is dead, for the kernel says so. No
// process IDs, no ages, no heartbeats.
//
// Ledger. Behind its text, an owner file lists the numbers of the owner's tickets
// that are out. The owner writes a number before it makes the ticket's file, and
// strikes it out before it removes that. All processes have the file in their
// memory, so this costs no system call. A ticket's file that goes while its number
// stands was removed by another program or a person. Then the ticket keeps its place
// in the queue of every process until its owner has struck it out or died, and the
// owner puts the file back if the ticket is inside. A process that has listed the
// directory may never have seen such a file. It gives out no ticket before the ledgers
// name only tickets that it knows. See file_missing.go.
//
// Turn. The engine hears of every file that comes and goes in the directory,
// in the order it happens (inotify), and so holds the queues of all processes in
// memory. A ticket joins its queue under the guard, after a sync of all that happened
// before; nothing earlier can come later. From then on, the rule of admission (see
// [Rule]) is a matter of memory. Where the next ticket is ours, the turn passes
// through a channel, and the file of the finished ticket is removed after that: its
// successor's is there already.
//
// Waking. While one of ours waits for a ticket of another process, one goroutine, the
// monitor, sleeps until the directory changes. Every 100 ms it also tries the locks of
// the other owners, and checks whether the directory is still the same.
//
// # Where to read on
//
// [File.Enter] takes a ticket (file_issue.go), which joins its queue in a directory
// (file_directory.go), and waits. [Turn.Leave] hands the turn over (file_handover.go).
// What happens in the directory is synced into the queues (file_events.go), with the
// owners of other processes (file_owners.go) and their missing files (file_missing.go).
// The monitor (file_monitor.go) looks after what nobody tells.
//
// Locks are taken in this order: File.mu, directory.syncing, directory.mu. A method
// whose name ends in Locked needs the lock of its type to be held; in a directory,
// that is mu. A directory calls its engine without any lock, and the engine is then
// free to call the directory while it holds its own.
//
// # What was rejected
//
// Listing the directory for every turn: it costs as much as the queue is long,
// and an error half-way looks like the end. Telling a leave from a removal by the
// event (a rename for the one, an unlink for the other): a leave takes two calls then,
// and a process that lists the directory has no event. Process IDs and ages to find the
// dead: both lie, after a reboot, a clock step, or in a container. A lock that
// the kernel queues (a blocking flock per request): it has no order, no
// timeout and no length. The whole queue in memory shared by the processes: fast,
// but a process that dies in it leaves it in pieces. A ledger has one writer, and
// nobody reads that of a dead one.
//
// # What remains imperfect
//
// Programs that make lock files without the guard, as mod_serializer does, are
// waited for, but they may overtake: they read the clock first and make the
// file later. Their file counts as abandoned when it is five minutes old. A directory
// that is replaced while tickets are out keeps processes that knew the old one from
// entering before its tickets are done, but a process that starts after that
// cannot know of them. It is the same if somebody removes the holder's file and the
// owner file at once, and the process starts before they are put back. Owners of
// versions without ledgers, and those on Windows, are protected by nothing: what
// goes there has left. The guard file, if somebody removes it within the millisecond
// after a process has looked at it, does not keep others from giving out tickets
// beside that process. And inotify is heard
// by one kernel only, which is why network file systems are refused.
type File struct {
	fileSettings
	open    func(path string, clock func() time.Time) (lockDir, error)
	unowned *unownedFiles

	mu       sync.Mutex
	arrivals []*ticket // without a ticket's number yet, in order; nil or emptied while nobody asks for one
	issuing  bool      // a goroutine gives out tickets
	dir      *directory
	replaced []*directory // old ones, with turns still out
	last     uint64       // the greatest number known to have been given out
	closed   bool
}

// fileSettings are what a file engine and its directories share. They stay as they
// are.
type fileSettings struct {
	path  string
	clock func() time.Time
	log   *slog.Logger
	lines *throttle.Throttle[string] // of the log, by their text

	unownedTime, tickTime time.Duration
}

// logRepeated logs what may happen again and again, at most once a second for each message.
func (s *fileSettings) logRepeated(level slog.Level, message string, attrs ...any) {
	if count, ok := s.lines.Allow(message); ok {
		s.log.Log(context.Background(), level, message, append(attrs, "count", count)...)
	}
}

// FileOptions adjust a [File]. The zero value is right for most.
type FileOptions struct {
	Clock func() time.Time // numbers the tickets; nil is [time.Now]
	Log   *slog.Logger     // nil is none
}

// OpenFile makes an engine on a directory. It makes the directory if it is
// missing, and fails if the engine could not work there: it cannot be written,
// it has no locks, or it lies on a network file system.
func OpenFile(path string, o FileOptions) (*File, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("finding lock directory: %w", err)
	}
	if err := tryLockDir(path); err != nil {
		return nil, err
	}
	return newFile(path, o, openLockDir), nil
}

func newFile(path string, o FileOptions, open func(string, func() time.Time) (lockDir, error)) *File {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &File{
		fileSettings: fileSettings{path: path, clock: o.Clock, log: o.Log, lines: new(throttle.Throttle[string]),
			unownedTime: unownedTime, tickTime: tickInterval},
		open:    open,
		unowned: newUnownedFiles(),
	}
}

// Enter implements [Engine].
func (f *File) Enter(ctx context.Context, a Arrival) (Turn, error) {
	t := newTicket(f, a)
	t.ready = make(chan struct{}, 1)
	if err := f.arrive(t); err != nil {
		return nil, t.refused(err)
	}
	if a.Joined != nil {
		a.Joined() // tickets are given out in the order of arrivals
	}
	if err := t.await(ctx, a.Timeout); err != nil && !f.settle(t, err) {
		return nil, t.refused(err)
	}
	return t, nil
}

// Join implements [Joiner].
func (f *File) Join(a Arrival, done func(Turn, error)) Wait { return joinQueue(f, a, done) }

// arrive implements [ticketEngine]. It asks for a ticket.
func (f *File) arrive(t *ticket) error {
	if cannotName(t.Prefix) {
		return &StorageError{"making lock file in", f.path, fmt.Errorf("no file may begin with the name of queue %q; see QueueName", t.Prefix)}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return &StorageError{"entering lock directory", f.path, ErrClosed}
	}
	f.arrivals = append(f.arrivals, t)
	if !f.issuing {
		f.issuing = true
		go f.issue()
	}
	return nil
}

// settle implements [ticketEngine].
func (f *File) settle(t *ticket, err error) (turn bool) {
	f.mu.Lock()
	d := t.dir
	if d == nil && !t.out { // the issuing goroutine passes it over
		t.givenUp = true
		if i := slices.Index(f.arrivals, t); i >= 0 {
			f.arrivals = slices.Delete(f.arrivals, i, i+1)
		}
	}
	f.mu.Unlock()
	return d != nil && d.settle(t, err)
}

// leave implements [ticketEngine].
func (f *File) leave(t *ticket) { t.dir.leave(t) }

// current returns the open directory, for use until release, or nil.
func (f *File) current() *directory {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dir != nil {
		f.dir.use()
	}
	return f.dir
}

// retire turns away from a directory that was replaced. Holders stay; waiters are
// refused, for their places in the queue are lost.
func (f *File) retire(d *directory) {
	f.mu.Lock()
	inside, lost, retired := d.retire(&StorageError{"waiting in lock directory", f.path, errReplaced})
	if !retired {
		f.mu.Unlock()
		return
	}
	if f.dir == d {
		f.dir = nil
	}
	f.replaced = append(f.replaced, d)
	f.mu.Unlock()

	f.log.Warn("the lock directory was replaced; those inside finish first, those who wait are refused",
		"path", f.path, "inside", inside, "refused", len(lost))
	d.removeTickets(lost)
}

// parted implements [directoryOwner].
func (f *File) parted(last uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = max(f.last, last)
}

// mayShut implements [directoryOwner].
func (f *File) mayShut(d *directory) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.issuing && !f.closed && !d.isSucceeded() || !d.idle() {
		return false
	}
	if f.dir == d {
		f.dir = nil
	}
	return true
}

// shut implements [directoryOwner].
func (f *File) shut(d *directory) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.replaced = slices.DeleteFunc(f.replaced, func(old *directory) bool { return old == d })
}

// Path is the directory, as an absolute path.
func (f *File) Path() string { return f.path }

// Queues implements [Engine].
func (f *File) Queues(context.Context) ([]QueueState, error) {
	d := f.current()
	if d == nil {
		return f.queuesOutside()
	}
	defer d.release()
	if err := d.sync(false); err != nil {
		return nil, err
	}
	d.identifyAll()
	return d.states(), nil
}

// Count implements [Counter]. While the engine does not work in the directory,
// it knows of nobody.
func (f *File) Count(queue string) (inside, waiting int) {
	d := f.current()
	if d == nil {
		return 0, 0
	}
	defer d.release()
	if d.sync(false) != nil {
		return 0, 0 // the next arrival learns of the error
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.queues[queue].counts()
}

// Evict implements [Engine]. A ticket of another process is taken out by that
// process, which a file in the directory asks to do so.
func (f *File) Evict(_ context.Context, queue string, token uint64) error {
	var err error
	if d := f.current(); d != nil {
		defer d.release()
		err = d.evictToken(queue, token)
	} else {
		err = f.evictOutside(queue, token)
	}
	if err != nil {
		return fmt.Errorf("evicting ticket %d from queue %q: %w", token, queue, err)
	}
	return nil
}

// closeTime is how long Close waits for holders, once they are revoked, and for the
// last files to be removed.
const closeTime = time.Second

// Close implements [Engine]. It waits for the directory to be left in order
// where no turn is out, and for a moment where holders were revoked.
func (f *File) Close() error {
	closed := &StorageError{"waiting in lock directory", f.path, ErrClosed}
	f.mu.Lock()
	f.closed = true
	for _, t := range f.arrivals {
		if !t.givenUp {
			t.refuse(closed)
		}
	}
	f.arrivals = nil
	old := slices.DeleteFunc(slices.Clone(f.replaced), (*directory).beginClosing)
	d := f.dir
	if d != nil {
		d.use()
		d.beginClosing()
	}
	f.mu.Unlock()
	if d == nil {
		awaitAll(old)
		return nil
	}
	idle, leaving := d.close(closed)
	awaitAll(old)
	switch {
	case idle:
		<-d.done
	case leaving:
		select {
		case <-d.done:
		case <-time.After(closeTime):
		}
	}
	return nil
}

// awaitAll waits until directories are shut, but not for long: a process that holds
// the guard of one may have been stopped.
func awaitAll(directories []*directory) {
	enough := time.After(closeTime)
	for _, d := range directories {
		select {
		case <-d.done:
		case <-enough:
			return
		}
	}
}

// Interface guards
var (
	_ Engine         = (*File)(nil)
	_ Joiner         = (*File)(nil)
	_ Counter        = (*File)(nil)
	_ directoryOwner = (*File)(nil)
)

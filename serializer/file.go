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

// File keeps queues as lock files in a directory. Any number of processes on one
// machine may share the directory, also across containers. The file names have the
// format of Apache's mod_serializer; see [Ticket].
//
// # How it works
//
// Ticket. One control file, the guard, is never deleted. The process that holds its
// lock (flock) issues tickets. A ticket's number is the time in microseconds, but at
// least one more than the last number, which the guard file records. So a ticket that
// exists is smaller than every ticket still to come, whatever the clock does. After a
// power failure, numbering resumes above a bound, which was on the disk before any
// number came near it; see file_reserve.go. One goroutine takes the guard for all
// callers that have arrived in the meantime. If another process is stopped while it
// holds the guard, only that goroutine blocks. The callers wait for the goroutine, and
// end by their own timeouts.
//
// Owner. A process keeps an owner file, locked for as long as it works in the
// directory. A ticket is a hard link to it. Anyone can open a ticket and try the lock:
// if it is granted, the owner is dead. This relies on the kernel, not on process IDs,
// ages or heartbeats.
//
// Ledger. After its text, an owner file lists the numbers of the owner's tickets that
// are out. The owner writes a number before it makes the ticket's file, and strikes it
// out before it removes the file. All processes map the file into memory, so this takes
// no system call. If a ticket's file disappears while its number stands, another
// program or a person has removed it. The ticket then keeps its place in every
// process's queue until its owner has struck it out or died. If the ticket is inside,
// the owner puts the file back. A process that lists the directory in between never
// sees such a file. So it issues no ticket until the ledgers name only tickets that it
// knows. See file_missing.go.
//
// Turn. The engine is notified of every file that appears or disappears in the
// directory, in order (inotify). So it keeps the queues of all processes in memory. A
// ticket joins its queue under the guard, after a sync of all earlier events, so no
// smaller ticket can come later. From then on, admission (see [Rule]) is decided in
// memory. If the next ticket is local, the turn passes through a channel. The finished
// ticket's file is removed after that: the next ticket's file already exists.
//
// Waking. While a local ticket waits for a remote one, one goroutine, the monitor,
// sleeps until the directory changes. Every 100 ms, it also tries the locks of the
// other owners, and checks that the directory is still the same.
//
// # Where to read on
//
// [File.Enter] takes a ticket (file_issue.go), which joins its queue in a directory
// (file_directory.go), and waits. [Turn.Leave] hands the turn over (file_handover.go).
// The directory's events are synced into the queues (file_events.go), with the owners
// of other processes (file_owners.go) and their missing files (file_missing.go). The
// monitor (file_monitor.go) checks what no event reports.
//
// # Locks
//
// A method whose name ends in Locked requires the lock mu of its type. While a lock is
// held, only locks below it in this list are taken:
//
//	File.mu            arrivals, and which directories there are
//	directory.syncing  the syncer: what is known from the files
//	removals.changing  only one thread changes the directory
//	directory.mu       queues and tickets
//	osDir.mu           owner files
//	osDir.striking     the list of the ledgers
//	ownLedger.mu       one ledger
//
// The other locks are leaves: nothing else is locked while one of them is held. They are
// those of the timeouts, the removals, the unowned files, the log, and the wait for a
// change. So is the lock of [Memory].
//
// A directory holds none of its locks when it calls its engine. [Arrival.Joined] and
// [Arrival.Revoke] are called without locks, and the log is written without locks
// (file_log.go).
//
// # What was rejected
//
//   - Listing the directory for every turn: the cost grows with the queue, and an error
//     half-way looks like the end.
//   - Distinguishing a leave from a removal by the event (a rename for the one, an
//     unlink for the other): a leave would take two calls, and a process that lists the
//     directory sees no event.
//   - Process IDs and ages to find dead processes: both lie after a reboot, after a
//     clock step, or in a container.
//   - A lock that the kernel queues (a blocking flock per request): it has no order, no
//     timeout and no length limit.
//   - The whole queue in memory shared by the processes: fast, but a process that dies
//     while changing it leaves it broken. (A ledger has one writer, and nobody reads
//     that of a dead process.)
//
// # What remains imperfect
//
//   - Requests wait for lock files that other programs make without the guard, as
//     mod_serializer does. But such files may overtake: these programs read the clock
//     first and make the file later. Their file counts as abandoned when it is five
//     minutes old.
//   - If a directory is replaced while tickets are out, processes that knew the old one
//     wait for its tickets. A process that starts later cannot know of them. The same
//     holds if somebody removes the holder's file and the owner file at once, and a
//     process starts before they are back.
//   - Nothing protects the tickets of versions without ledgers, or on Windows: a file
//     that disappears counts as a leave.
//   - If somebody removes the guard file within the millisecond after a process has
//     checked it, others may issue tickets beside that process.
//   - inotify reaches only one kernel. That is why network file systems are refused.
type File struct {
	fileSettings
	open    func(path string, clock func() time.Time) (lockDir, error)
	unowned *unownedFiles
	waits   waits
	written *laterHandler // behind log

	mu       sync.Mutex
	arrivals []*ticket // that have no number yet, in order
	issuing  bool      // a goroutine is issuing tickets
	dir      *directory
	replaced []*directory // directories that were replaced while turns were out
	last     uint64       // the greatest number known to have been issued
	closed   bool
}

// fileSettings are the settings that a file engine and its directories share. They never
// change.
type fileSettings struct {
	path  string
	clock func() time.Time
	log   *slog.Logger
	lines *throttle.Throttle[string] // limits repeated log messages

	unownedTime, tickTime time.Duration
}

// logRepeated logs a message that may recur, at most once a second for each message.
func (s *fileSettings) logRepeated(level slog.Level, message string, attrs ...any) {
	if count, ok := s.lines.Allow(message); ok {
		s.log.Log(context.Background(), level, message, append(attrs, "count", count)...)
	}
}

// FileOptions adjust a [File]. The zero value suits most uses.
type FileOptions struct {
	// Clock is the time for ticket numbers. It must not call the engine. Nil means
	// [time.Now].
	Clock func() time.Time

	Log *slog.Logger // nil means no log
}

// OpenFile makes an engine on a directory. It makes the directory if it is missing. It
// fails if the engine could not work there: if the directory is not writable, has no
// locks, or is on a network file system.
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
	log := &laterHandler{Handler: o.Log.Handler()}
	return &File{
		fileSettings: fileSettings{path: path, clock: o.Clock, log: slog.New(log), lines: new(throttle.Throttle[string]),
			unownedTime: unownedTime, tickTime: tickInterval},
		open:    open,
		unowned: newUnownedFiles(),
		written: log,
	}
}

// Enter implements [Engine]. It shares no code with [Memory.Enter]: one more call would
// give each waiter a larger stack.
func (f *File) Enter(ctx context.Context, a Arrival) (Turn, error) {
	t := newTicket(f, &a)
	t.ready = f.waits.channel()
	if err := f.arrive(t); err != nil {
		return nil, t.refused(err)
	}
	if a.Joined != nil {
		a.Joined() // tickets are issued in the order of arrivals
	}
	if err := f.waits.await(ctx, t.waiter, a.Timeout); err != nil && !f.settle(t, err) {
		return nil, t.refused(err)
	}
	return t, nil
}

// Join implements [Joiner].
func (f *File) Join(a Arrival, done func(Turn, error)) Wait {
	return joinQueue(f, &f.waits.timeouts, a, done)
}

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
	if d == nil && !t.out { // the issuing goroutine skips it
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

// retire stops using a directory that was replaced. Holders stay inside. Waiters are
// refused, because their places in the queue are lost.
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

	f.log.Warn("the lock directory was replaced; holders finish first, and waiters are refused",
		"path", f.path, "inside", inside, "refused", len(lost))
	d.removeDismissed(lost...)
}

// noteLast implements [directoryOwner].
func (f *File) noteLast(last uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = max(f.last, last)
}

// mayShut implements [directoryOwner].
func (f *File) mayShut(d *directory) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.issuing && !f.closed && !d.retirementNow().hasSuccessor || !d.idle() {
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

// Path returns the directory, as an absolute path.
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

// Count implements [Counter]. While the engine does not work in the directory, it
// counts nobody.
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
	return d.queues.byName[queue].counts()
}

// Evict implements [Engine]. For a ticket of another process, it makes a file in the
// directory that asks that process to take the ticket out.
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

// Close implements [Engine]. If no turn is out, it waits until the directory is cleaned
// up; if holders were revoked, it waits only for a moment.
func (f *File) Close() error {
	f.close()
	f.written.wait(closeTime)
	return nil
}

func (f *File) close() {
	closed := &StorageError{"waiting in lock directory", f.path, ErrClosed}
	f.mu.Lock()
	f.closed = true
	for _, t := range f.arrivals {
		if !t.givenUp {
			t.refuse(closed)
		}
	}
	f.arrivals = nil
	f.waits.timeouts.close()
	old := slices.DeleteFunc(slices.Clone(f.replaced), (*directory).beginClosing)
	d := f.dir
	if d != nil {
		d.use()
		d.beginClosing()
	}
	f.mu.Unlock()
	if d == nil {
		awaitAll(old)
		return
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
}

// awaitAll waits until the directories are shut, but at most for closeTime: another
// process may have been stopped while it holds the guard of one.
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

package serializer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"
)

// File keeps queues as lock files in a directory. Any number of processes of
// one machine may share the directory, in containers, too. The names of the
// files are those of Apache's mod_serializer; see [Ticket].
//
// # How it works
//
// Ticket. One control file, the guard, is never deleted. Whoever holds its lock
// (flock) gives out tickets: the number is the time in microseconds, but at
// least one more than the last number, which the guard file records. So a
// ticket that exists is smaller than every ticket still to come, whatever the
// clock does. After a power failure, numbers go on above a bound that was on the disk
// before they came near it; see reserve.go. One goroutine takes the guard for all who arrive meanwhile. It
// alone blocks if another process is stopped while it holds the guard; the
// requests wait for that goroutine, and end by their own timeouts.
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
// stands was removed by another program or a person: the ticket keeps its place in
// everybody's line until its owner has struck it out or died, and the owner puts the
// file back if the ticket is inside. Who has listed the directory, and so may never
// have seen such a file, gives out no ticket before the ledgers name only tickets
// that it knows. See missing.go.
//
// Turn. The engine hears of every file that comes and goes in the directory,
// in the order it happens (inotify), and so holds the tickets of all processes
// as lines in memory. A ticket is entered in its line under the guard, after
// hearing out all that happened before; nothing earlier can come later. From
// then on, the rule of admission (see [Rule]) is a matter of memory. Where the
// next in line is ours, the turn passes through a channel, and the finished
// ticket is removed after that: its successor's stands already.
//
// Waking. While one of ours waits for a ticket of another process, one goroutine
// sleeps until the directory changes. Every 100 ms the engine also tries the
// locks of the other owners, and looks whether the directory is still the same.
//
// # What was rejected
//
// Listing the directory for every turn: it costs as much as the queue is long,
// and an error half-way looks like the end. Telling a leave from a removal by the
// event (a rename for the one, an unlink for the other): a leave takes two calls then,
// and who lists the directory has no event. Process IDs and ages to find the
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
// that is replaced while tickets are out keeps those who knew the old one from
// entering before its tickets are done, but a process that starts after that
// cannot know of them. It is the same if somebody removes the holder's file and the
// owner file at once, and the process starts before they are put back. Owners of
// versions without ledgers, and those on Windows, are protected by nothing: what
// goes there has left. The guard file, if somebody removes it within the millisecond
// after a process has looked at it, does not keep others from giving out tickets
// beside that process. And inotify is heard
// by one kernel only, which is why network file systems are refused.
type File struct {
	path  string
	clock func() time.Time
	log   *slog.Logger
	open  func(path string, clock func() time.Time) (lockDir, error)

	mu        sync.Mutex
	arrivals  []*ticket // without a ticket yet, in order; nil or emptied while nobody asks for one
	issuing   bool      // a goroutine gives out tickets
	dir       *directory
	replaced  []*directory         // old ones, with turns still out
	strangers map[string]time.Time // when their files were first seen
	last      uint64               // the greatest number known to have been given out
	closed    bool

	complained time.Time // when the issuing goroutine last did

	strangerTime, tickTime time.Duration
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
	return &File{path: path, clock: o.Clock, log: o.Log, open: open, strangers: make(map[string]time.Time), strangerTime: strangerTime, tickTime: tickInterval}
}

// Enter implements [Engine].
func (f *File) Enter(ctx context.Context, a Arrival) (Turn, error) {
	p := newTicket(f, a)
	if err := f.arrive(p); err != nil {
		return nil, p.refused(err)
	}
	if a.Joined != nil {
		a.Joined() // tickets are given out in the order of arrivals
	}
	if err := p.await(ctx, a.Timeout); err != nil && !f.settle(p, err) {
		return nil, p.refused(err)
	}
	return p, nil
}

// arrive asks for a ticket.
func (f *File) arrive(p *ticket) error {
	if cannotName(p.Prefix) {
		return &StorageError{"making lock file in", f.path, fmt.Errorf("no file may begin with the name of queue %q; see QueueName", p.Prefix)}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return &StorageError{"entering lock directory", f.path, ErrClosed}
	}
	f.arrivals = append(f.arrivals, p)
	if !f.issuing {
		f.issuing = true
		go f.issue()
	}
	return nil
}

// settle ends a wait that did not end with the turn. It reports whether the
// turn came in the same moment and stands.
func (f *File) settle(p *ticket, err error) (turn bool) {
	f.mu.Lock()
	switch {
	case p.out:
		f.mu.Unlock()
	case !p.linked: // the issuing goroutine passes it over, or takes it back
		p.givenUp = true
		if i := slices.Index(f.arrivals, p); i >= 0 {
			f.arrivals = slices.Delete(f.arrivals, i, i+1)
		}
		f.mu.Unlock()
	case p.Admitted() && err == ErrTimeout:
		f.mu.Unlock()
		return true
	default:
		f.mu.Unlock()
		f.leave(p)
	}
	return false
}

// leave hands the turn on and removes the lock file, in this order.
func (f *File) leave(p *ticket) {
	f.mu.Lock()
	if p.out {
		f.mu.Unlock()
		return
	}
	d := p.dir
	granted := d.drop(p)
	d.users++
	f.mu.Unlock()

	if granted {
		yield()
		d.removeFinished(p)
		return
	}
	d.removeTicket(p)
	f.release(d)
}

// batchSize bounds how many tickets are given out in one go, and so for how
// long the first of them waits and others are kept from the guard.
const batchSize = 64

// issue gives out tickets until nobody asks for one.
func (f *File) issue() {
	var batch []*ticket
	for {
		// Whoever is about to arrive may do so now: one guard for all is
		// cheaper, and with nobody there this costs nothing.
		runtime.Gosched()
		batch = f.nextBatch(batch)
		if batch == nil {
			return
		}
		err := f.issueBatch(batch)
		for errors.Is(err, errReplaced) || errors.Is(err, errUnaccounted) && f.pauseFor(batch, err) {
			err = f.issueBatch(batch)
		}
		if err != nil {
			f.refuse(batch, err)
		}
	}
}

// pauseFor waits for a moment before a batch asks again for tickets. It reports
// whether anybody still wants one.
func (f *File) pauseFor(batch []*ticket, why error) bool {
	f.complainAbout(why)
	time.Sleep(retryInterval)
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.closed && slices.ContainsFunc(batch, func(p *ticket) bool { return !p.givenUp && !p.out })
}

// retryInterval is the time between two tries to give out tickets where a lock file
// is missing.
const retryInterval = 2 * time.Millisecond

// complainAbout logs why no tickets are given out, now and then.
func (f *File) complainAbout(why error) {
	if time.Since(f.complained) >= time.Second {
		f.complained = time.Now()
		f.log.Warn("no tickets are given out for the moment", "error", why)
	}
}

// nextBatch returns those who ask for a ticket now, in the order they came, or
// nil. done is a batch whose memory is free.
func (f *File) nextBatch(done []*ticket) []*ticket {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(done)
	if len(f.arrivals) == 0 {
		f.issuing = false
		f.arrivals = done[:0]
		return nil
	}
	if len(f.arrivals) <= batchSize {
		batch := f.arrivals
		f.arrivals = done[:0]
		return batch
	}
	batch := f.arrivals[:batchSize:batchSize]
	f.arrivals = f.arrivals[batchSize:]
	return batch
}

func (f *File) refuse(batch []*ticket, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range batch {
		if p.queue == nil && !p.out && !p.givenUp {
			p.refuse(err)
		}
	}
}

// issueBatch gives tickets to a batch, under the guard.
func (f *File) issueBatch(batch []*ticket) error {
	d, err := f.acquire()
	if err != nil {
		return err
	}
	checked := time.Now()
	defer f.release(d)
	defer d.sys.unlock()
	if err := d.observe(true); err != nil {
		return err
	}
	last, err := d.lastStamp(batch)
	if err != nil {
		return err
	}
	if last, err = d.afterStart(last); err != nil {
		return err
	}
	d.identifyFor(batch)
	joined, last, err := d.join(batch, last)
	if err != nil || len(joined) == 0 {
		return err
	}
	// Recorded first: a number that is then not used does no harm.
	err = d.reserve(last)
	if err == nil {
		err = d.record(last)
	}
	if err != nil {
		d.dismiss(joined, err)
		return nil
	}
	if d.createAll(joined, checked) != nil {
		f.retire(d)
	}
	return nil
}

// acquire takes the guard of the directory as it is now.
func (f *File) acquire() (*directory, error) {
	for {
		d, err := f.awake()
		if err != nil {
			return nil, err
		}
		if err = d.sys.lock(); err == nil {
			if err = d.sys.check(); err == nil {
				return d, nil
			}
			d.sys.unlock()
		}
		if errors.Is(err, errReplaced) {
			f.retire(d)
		}
		f.release(d)
		if !errors.Is(err, errReplaced) {
			return nil, err
		}
	}
}

// awake returns the open directory, for use until release. Only the issuing
// goroutine opens it.
func (f *File) awake() (*directory, error) {
	if d := f.current(); d != nil {
		return d, nil
	}
	for f.oldTurnsOut() && f.wanted() {
		time.Sleep(pollInterval)
	}
	if !f.wanted() {
		return nil, &StorageError{"entering lock directory", f.path, ErrClosed}
	}
	sys, err := f.open(f.path, f.clock)
	if err != nil {
		return nil, err
	}
	d := newDirectory(f, sys)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dir = d
	d.users++
	go d.keep()
	return d, nil
}

// current returns the open directory, for use until release, or nil.
func (f *File) current() *directory {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dir != nil {
		f.dir.users++
	}
	return f.dir
}

// release ends a use of the directory.
func (f *File) release(d *directory) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d.users--
	if d.users == 0 && d.owned == 0 && (f.closed || d.retired) { // nothing keeps it open
		d.wake()
	}
}

func (f *File) oldTurnsOut() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.replaced) > 0
}

// wanted reports whether somebody still waits for the engine to go on.
func (f *File) wanted() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.closed
}

// retire turns away from a directory that was replaced. Who is inside stays;
// who waits is refused, for their place in line is lost.
func (f *File) retire(d *directory) {
	f.mu.Lock()
	if d.retired {
		f.mu.Unlock()
		return
	}
	d.retired = true
	if f.dir == d {
		f.dir = nil
	}
	f.replaced = append(f.replaced, d)
	lost := d.dismissWaiting(&StorageError{"waiting in lock directory", f.path, errReplaced})
	inside := d.owned
	d.wake()
	f.mu.Unlock()

	f.log.Warn("the lock directory was replaced; those inside finish first, those who wait are refused",
		"path", f.path, "inside", inside, "refused", len(lost))
	for _, p := range lost {
		d.removeTicket(p)
	}
}

// Path is the directory, as an absolute path.
func (f *File) Path() string { return f.path }

// Queues implements [Engine].
func (f *File) Queues(context.Context) ([]QueueState, error) {
	d := f.current()
	if d == nil {
		return nil, nil
	}
	defer f.release(d)
	if err := d.observe(false); err != nil {
		return nil, err
	}
	d.identifyAll()
	f.mu.Lock()
	defer f.mu.Unlock()
	me := self(Rule{}, time.Time{}).String()
	return queueStates(f.path, d.lines, f.clock(), func(e *ticket) string {
		if e.Local() {
			return me
		}
		return e.owner
	}), nil
}

// Evict implements [Engine]. A ticket of another process is taken out by that
// process, which is told so by a file in the directory.
func (f *File) Evict(_ context.Context, queue string, token uint64) error {
	d := f.current()
	if d == nil {
		return fmt.Errorf("evicting ticket %d from queue %q: %w", token, queue, ErrNoTicket)
	}
	defer f.release(d)
	if err := d.observe(false); err != nil {
		return fmt.Errorf("evicting ticket %d from queue %q: %w", token, queue, err)
	}
	f.mu.Lock()
	e := d.lines[queue].find(token)
	f.mu.Unlock()
	if e == nil {
		return fmt.Errorf("evicting ticket %d from queue %q: %w", token, queue, ErrNoTicket)
	}
	if e.Local() {
		d.evict(e)
		return nil
	}
	return evictFile(d.sys, e.Ticket)
}

// closeTime is how long Close waits for those inside, once they are told, and
// for the last files to be removed.
const closeTime = time.Second

// Close implements [Engine]. It waits for the directory to be left in order
// where no turn is out, and for a moment where those inside have been told.
func (f *File) Close() error {
	f.mu.Lock()
	f.closed = true
	closed := &StorageError{"waiting in lock directory", f.path, ErrClosed}
	for _, p := range f.arrivals {
		if !p.givenUp {
			p.refuse(closed)
		}
	}
	f.arrivals = nil
	old := slices.DeleteFunc(slices.Clone(f.replaced), (*directory).busy)
	for _, d := range old {
		d.wake()
	}
	d := f.dir
	if d == nil {
		f.mu.Unlock()
		awaitAll(old)
		return nil
	}
	dismissed := d.dismissWaiting(closed)
	revokes := d.takeRevokes()
	d.users++
	f.mu.Unlock()
	for _, revoke := range revokes {
		revoke(ErrClosed)
	}
	for _, p := range dismissed {
		d.removeTicket(p)
	}
	f.release(d)

	f.mu.Lock()
	idle, leaving := !d.busy(), d.owned == 0
	d.wake()
	f.mu.Unlock()
	awaitAll(old)
	switch {
	case idle:
		<-d.done
	case leaving, len(revokes) > 0:
		select {
		case <-d.done:
		case <-time.After(closeTime):
		}
	}
	return nil
}

// awaitAll waits until directories are left, but not for long: somebody may
// have stopped who holds the guard of one.
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

package etcd

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/throttle"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// Engine keeps queues in an etcd cluster, for any number of machines.
//
// # How it works
//
// Ticket. A ticket is a key <namespace><queue>/<lease>-<seq>. etcd numbers all changes
// in one order, on which its members agree. With each key, it keeps the number
// (revision) at which the key was created. That revision is the ticket's number, its
// position in the queue and its fencing token. No clock is involved. The key is created
// only if it does not exist. So a request whose answer was lost can be sent again
// without taking a second ticket. No key is used for two tickets at a time.
//
// Turn. New tickets always come last. Once a process has read all tickets up to a
// revision, it knows every ticket that can ever be before its own up to there. Later,
// tickets can only disappear. So admission is decided in memory. If the next waiter is
// local, the turn passes through a channel. The finished ticket is deleted afterwards:
// its successor already exists, so no other process sees a gap. One read of the queue
// serves about half of the process's waiters, so its cost per hand-over does not grow
// with the queue.
//
// A caller that leaves and returns at once sends one request, for the deletion and the
// new ticket. etcd commits in rounds: of two requests, one would wait for the other,
// and the next process with it.
//
// Waking. Only the first waiter of a process watches other tickets, and only if remote
// tickets are before it. It watches the mark of the last of those. The transaction that
// deletes a ticket puts its mark, which says whether the ticket was inside alone. If it
// was, all tickets before it have left too, and the next waiter enters without reading
// anything. So a hand-over between processes is one write and one event. If the rule
// admits several ([serializer.Rule]), one key is not enough: the first waiter then
// watches all deletions in the queue.
//
// The process also watches its own tickets, once for each queue. A waiter whose ticket
// somebody else deletes is evicted, unless it turns out that the lease has ended. A
// dead process leaves no marks; a read once a second detects that.
//
// Watch, then read. etcd serves a watch that begins in the past from a loop that runs
// every 100 ms. Under load, every revision just read is in the past. So a watch here
// begins now, and the read follows. The watch then reports the end of every ticket that
// the read shows. A member may answer the read from its own state, if that includes our
// watch and our tickets. A compaction removes nothing that is needed. If a watch is
// lost, a new one begins, and a read follows. The read once a second requires a
// majority, because the member in use may be cut off.
//
// Members. A request goes to one member, and also to the next one if the first is
// silent. Both may carry it out. See cluster.
//
// Lease. All tickets of a process belong to one lease, and disappear with it if the
// process dies. The lease of a live process can also end, if the process was stopped or
// cut off. So the process keeps its own deadline, on a clock that keeps running while
// the machine is suspended. The deadline is one time to live after the last answered
// keep-alive was sent, less a margin. The margin is a fifth of the time to live, and at
// least half a second. After the deadline, nobody enters, waiters are refused, holders
// are revoked ([serializer.ErrLost]), and the next arrival waits for a new lease. A
// process without the right to write stops renewing: it could not delete its tickets,
// and the others would wait for them.
//
// # Locks
//
// Engine.mu guards sessions, queues and tickets. A method that needs it ends in Locked.
// While it is held, no other lock is taken, nothing is sent to etcd, and no function of
// the user is called. These are [serializer.Arrival.Joined], [serializer.Arrival.Revoke],
// the clock and the logger. So no lock comes after it. The locks of a member come in this
// order: loggingIn or opening, then member.mu. Those of a feed: sending, then feed.mu.
//
// # Why it is safe, and how far
//
// While all processes run and their clocks tick at about the same rate, a process gives
// up its lease before etcd ends it. Then no two are inside. A process that is stopped
// between two instructions (a long pause, SIGSTOP, a frozen machine) cannot notice.
// When it wakes, its holder may still be inside after the lease has ended, until its
// timer fires. No lock with a lease can do better. The upstream can: if it refuses
// tokens smaller than the greatest it has seen, a late holder does no harm.
//
// # What was rejected
//
//   - concurrency.Mutex of etcd's client: its key is the lease, so two requests of one
//     process both hold it. And its watches begin in the past.
//   - The client library itself: see member.
//   - One watch on the whole queue in each process, with all queues in memory: less
//     code, but every change is sent to all machines.
//   - Sorting by etcd (WithLastCreate): the server reads the whole queue each time.
//   - Several tickets in one transaction: they would have the same number.
//
// # What remains imperfect
//
//   - An arrival that is refused because the queue is full has a ticket for a moment.
//     Another arrival in that moment may be refused because of it.
//   - A position may count tickets whose callers have just left.
//   - A request without an answer may be carried out much later: even after its
//     repetition made the ticket, and the ticket was used and deleted. The ticket then
//     exists again, without a caller. The engine searches the queue for such tickets
//     for a minute, and they disappear with the lease at the latest.
//   - An etcd leader that was cut off can still answer keep-alives until it notices.
//     The margin should exceed the cluster's election timeout (1 s by default), so a
//     time to live below 5 s relies on the token.
//   - A cluster restored from a backup has different tickets than before. The session
//     ends at the first answer with a lower revision or another cluster ID. Until then,
//     or if the revision is higher, a holder may not be alone.
type Engine struct {
	keys    keyspace
	where   string // the endpoints, for people
	owner   string // this process, for people
	ttl     time.Duration
	cluster *cluster
	clock   func() time.Duration // measures leases
	now     func() time.Time     // for people
	log     *slog.Logger
	ctx     context.Context // done when the engine has been closed and left
	stop    context.CancelFunc
	ended   chan struct{} // closed when run has returned

	mu      sync.Mutex
	session *session      // nil while there is no lease
	failure error         // why the last attempt to get a lease failed; nil while one is in progress
	changed chan struct{} // closed and replaced when session or failure change
	tickets int           // local tickets that have not left yet
	closed  bool

	logged   string                      // the last failure that was logged
	failures throttle.Throttle[struct{}] // of log entries about requests to etcd
	watchLag time.Duration               // for the last local deletion that a watch reported
	lost     atomic.Uint64               // number of leases lost
}

// Path returns etcd: and the namespace, without a slash at the end.
func (e *Engine) Path() string { return "etcd:" + strings.TrimSuffix(string(e.keys), "/") }

// Enter implements [serializer.Engine].
func (e *Engine) Enter(ctx context.Context, a serializer.Arrival) (serializer.Turn, error) {
	if a.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, a.Timeout, serializer.ErrTimeout)
		defer cancel()
	}
	s, err := e.current(ctx)
	if err != nil {
		return nil, refusal(a, 0, 0, err)
	}
	t, err := e.arrive(s, a)
	if err != nil {
		return nil, refusal(a, 0, 0, err)
	}
	defer t.notifyListed()
	if err := t.await(ctx); err != nil {
		return e.settle(t, err)
	}
	if !e.holds(t) {
		return nil, refusal(a, t.position, t.Token(), serializer.ErrLost)
	}
	return t, nil
}

// current returns the session. While a lease is being requested, it waits for the result.
func (e *Engine) current(ctx context.Context) (*session, error) {
	for {
		e.mu.Lock()
		s, failure, closed, changed := e.session, e.failure, e.closed, e.changed
		e.mu.Unlock()
		switch {
		case closed:
			return nil, e.storageError("using etcd", serializer.ErrClosed)
		case s != nil:
			return s, nil
		case failure != nil:
			return nil, e.storageError("using etcd", failure)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// holds checks the lease again after the wait. Since the turn came, the process may have
// been stopped, or the machine suspended.
func (e *Engine) holds(t *ticket) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t.session.standsLocked() {
		return true
	}
	t.session.dropLocked(t)
	return false
}

// settle ends a wait without a turn. If the turn came at the same moment as the
// timeout, it counts.
func (e *Engine) settle(t *ticket, err error) (serializer.Turn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t.granted && errors.Is(err, serializer.ErrTimeout) && t.session.standsLocked() {
		return t, nil
	}
	t.session.rejectLocked(t, err)
	return nil, refusal(t.arrival, t.position, t.Token(), err)
}

// leave hands over the turn.
func (e *Engine) leave(t *ticket) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t.session.dropLocked(t)
}

// rejectLocked refuses a waiter, and gives up its ticket. A ticket that is not known to
// exist is given up by taken.
func (s *session) rejectLocked(t *ticket, err error) {
	t.refuseLocked(err)
	if t.joined {
		s.dropLocked(t)
	}
}

// dropLocked gives up a ticket: it takes it out of its queue, and deletes its key.
func (s *session) dropLocked(t *ticket) {
	if s.tickets[t.key] != t {
		return
	}
	delete(s.tickets, t.key)
	s.engine.ticketGoneLocked()
	if s.over {
		s.forgetIfLeftLocked()
		return
	}
	left := t.granted && t.Rule.Alone() && !t.vanished
	if t.joined && (t.granted || !t.vanished) { // it is listed
		t.queue.removeLocked(t)
	}
	slot := t.slot
	if t.doubtful {
		slot = 0
	}
	s.deleteLocked(deletion{queue: t.queue, key: t.key, rev: t.rev, slot: slot, left: left})
	t.queue.updateLocked()
}

func (e *Engine) storageError(op string, err error) error {
	return &serializer.StorageError{Op: op, Path: e.where, Err: err}
}

var _ serializer.Engine = (*Engine)(nil)

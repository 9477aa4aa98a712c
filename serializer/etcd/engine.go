package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
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
// the user is called: neither [serializer.Arrival.Joined] nor
// [serializer.Arrival.Revoke], the clock or the logger. So no lock comes after it. The
// locks of a member come in this order: loggingIn or opening, then member.mu. Those of a
// feed come in this one: sending, then feed.mu.
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

// Options say where and how an [Engine] keeps its queues.
type Options struct {
	// Endpoints are the URLs of the cluster's members, with the port, such as
	// https://10.0.0.1:2379. At least one is required.
	Endpoints []string

	// Namespace is the prefix of all keys. Queues in different namespaces are
	// independent. No namespace should begin with another namespace and a
	// slash. Default: orderly/.
	Namespace string

	// TTL is the time to live of the process's lease: how long others wait for
	// a process that died or is cut off. Whole seconds, 2s to 1h. Default: 10s.
	TTL time.Duration

	// Username and Password are for etcd's authentication. Default: none.
	Username, Password string

	// TLS is the configuration for https endpoints. Default: the system's authorities,
	// and no client certificate.
	TLS *tls.Config

	// Clock is the source of the times that people see in lists. The order does not
	// depend on it. Default: [time.Now].
	Clock func() time.Time

	// Log receives the start and loss of leases, and errors. Default: none.
	Log *slog.Logger
}

// Defaults and bounds of [Options].
const (
	DefaultNamespace = "orderly/"
	DefaultTTL       = 10 * time.Second
	MinTTL           = 2 * time.Second
	MaxTTL           = time.Hour
)

// Open makes an engine. It does not wait for the cluster. Arrivals wait while a lease
// is being requested. If that fails, they are refused with [serializer.ReasonStorage]
// until the engine, which keeps trying, has a lease. The error is for invalid options.
func Open(o Options) (*Engine, error) {
	if len(o.Endpoints) == 0 {
		return nil, errors.New("opening etcd engine: no endpoints")
	}
	if o.Namespace == "" {
		o.Namespace = DefaultNamespace
	}
	if o.TTL == 0 {
		o.TTL = DefaultTTL
	}
	if o.TTL < MinTTL || o.TTL > MaxTTL || o.TTL%time.Second != 0 {
		return nil, fmt.Errorf("opening etcd engine: time to live %s; expected whole seconds from %s to %s", o.TTL, MinTTL, MaxTTL)
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c, err := newCluster(o.Endpoints, o.TLS, o.Username, o.Password, patienceOf(o.TTL))
	if err != nil {
		return nil, fmt.Errorf("opening etcd engine: %w", err)
	}
	e := &Engine{
		keys:    keyspace(o.Namespace),
		where:   strings.Join(o.Endpoints, ","),
		owner:   self(),
		ttl:     o.TTL,
		cluster: c,
		clock:   uptime,
		now:     o.Clock,
		log:     o.Log,
		ended:   make(chan struct{}),
		changed: make(chan struct{}),
	}
	e.ctx, e.stop = context.WithCancel(context.Background())
	go e.run()
	return e, nil
}

// Path returns etcd: and the namespace, without a slash at the end.
func (e *Engine) Path() string { return "etcd:" + strings.TrimSuffix(string(e.keys), "/") }

// run keeps a session until the engine is closed and its last holder has left.
func (e *Engine) run() {
	defer close(e.ended)
	defer e.giveBack()
	id := newLeaseID()
	for e.ctx.Err() == nil {
		s, err := e.begin(e.ctx, id)
		if err != nil {
			e.fail(err)
			sleep(e.ctx, 5*retryPause)
			continue
		}
		id = newLeaseID()
		if e.use(s) {
			e.log.Info("got a lease from etcd", "endpoints", e.where, "namespace", string(e.keys), "lease", fmt.Sprintf("%x", s.id), "ttl", s.ttl)
			go s.serveEvictions()
			go s.servePauses()
			s.keepAlive()
		}
	}
}

// use makes s the session that tickets are taken in.
func (e *Engine) use(s *session) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ctx.Err() != nil || s.over {
		return false
	}
	e.session = s
	e.announceLocked(nil)
	return true
}

// fail notes why there is no session, and logs it if the reason is new.
func (e *Engine) fail(err error) {
	e.mu.Lock()
	first := e.failure == nil || e.logged != err.Error()
	e.announceLocked(err)
	e.logged = err.Error()
	e.mu.Unlock()
	if first && e.ctx.Err() == nil {
		e.log.Warn("etcd cannot be used; requests are refused until it can", "endpoints", e.where, "namespace", string(e.keys), "error", err)
	}
}

// announceLocked wakes the goroutines that wait for a session.
func (e *Engine) announceLocked(failure error) {
	e.failure = failure
	close(e.changed)
	e.changed = make(chan struct{})
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
	t.refused = true
	if t.joined || t.vanished {
		t.session.dropLocked(t)
	} // else taken gives up the ticket once it exists
	return nil, refusal(t.arrival, t.position, t.Token(), err)
}

// leave hands over the turn.
func (e *Engine) leave(t *ticket) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t.session.dropLocked(t)
}

// Close implements [serializer.Engine]. If no ticket is left, it revokes the lease;
// otherwise, the last ticket to leave does.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	e.announceLocked(e.failure)
	var revokes []func(error)
	if e.session != nil {
		revokes = e.session.dismissLocked(e.storageError("waiting in etcd", serializer.ErrClosed))
	}
	left := e.stopIfLeftLocked()
	e.mu.Unlock()
	for _, revoke := range revokes {
		revoke(serializer.ErrClosed)
	}
	if left {
		<-e.ended
	}
	return nil
}

// dismissLocked refuses all waiters, and returns the callbacks that revoke the
// turns of those inside.
func (s *session) dismissLocked(err error) (revokes []func(error)) {
	for _, t := range s.tickets {
		if t.granted {
			if revoke := t.takeRevokeLocked(); revoke != nil {
				revokes = append(revokes, revoke)
			}
			continue
		}
		t.refuseLocked(err)
		if t.joined || t.vanished {
			s.dropLocked(t)
		} // else taken gives up the ticket once it exists
	}
	return revokes
}

// ticketGoneLocked notes that one of our tickets has gone.
func (e *Engine) ticketGoneLocked() {
	e.tickets--
	e.stopIfLeftLocked()
}

// stopIfLeftLocked stops a closed engine without tickets.
func (e *Engine) stopIfLeftLocked() bool {
	if !e.closed || e.tickets > 0 {
		return false
	}
	e.stop()
	return true
}

// giveBack ends the last session. All keys that are not deleted yet go with the
// lease.
func (e *Engine) giveBack() {
	e.mu.Lock()
	s := e.session
	if s != nil {
		s.finishLocked()
	}
	e.mu.Unlock()
	if s != nil {
		ctx, cancel := context.WithTimeout(context.Background(), attemptTime(0))
		defer cancel()
		if err := e.revoke(ctx, s.id); err != nil {
			e.log.Warn("the lease could not be revoked; it will expire", "namespace", string(e.keys), "lease", fmt.Sprintf("%x", s.id), "error", err)
		}
	}
	e.cluster.close()
}

var _ serializer.Engine = (*Engine)(nil)

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

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Engine keeps queues in an etcd cluster, for any number of machines.
//
// # How it works
//
// Ticket. A ticket is a key <namespace><queue>/<lease>-<seq>. etcd numbers all
// that happens in one order, on which its members agree, and notes with each
// key the number (revision) at which it was made. That is the ticket's number,
// its place in the queue and its fencing token. No clock has a part in it. The
// key is made only if it is not there, so a request whose answer got lost is
// sent again without a second place being taken; and no key is used twice.
//
// Turn. Tickets only come behind those that exist. So once a process has seen
// all tickets up to a revision, it knows all that can ever be before its own
// ones up to there; what may have changed is only that some have gone. Who may
// enter is then a matter of memory. Where the next in line is ours, the turn
// passes through a channel, and the finished ticket is deleted after that: its
// successor's stands already, so nobody else sees a gap. One look at the queue
// serves for about half of those who wait in the process, so that its cost for
// each hand-over does not grow with the queue.
//
// Waking. Only the first of ours in a queue, where it waits for others, watches
// anything: the mark of the ticket right before its own, the last that must go.
// A mark is put by the transaction that deletes the ticket, and tells whether
// that one was inside, alone: then all before it are gone, too, and the next one
// enters without asking for anything. So a hand-over between processes is one
// write and one message. The rules that let several in ([serializer.Rule])
// cannot be watched by one key; then the first of ours hears of every ticket of
// the queue that goes. Our own tickets are watched, too, once in a queue: one
// that waits and is deleted by somebody else is evicted, unless the lease turns
// out to have ended. The tickets of a process that died leave no marks; a look
// once a second finds that out.
//
// Watch, then look. etcd serves a watch that begins in the past from a loop
// that runs every 100 ms, and under load every revision one has read is past.
// So a watch here begins now, and the look comes after it: what the look shows
// as standing, the watch will tell the end of. Looks may be answered by any
// member from what it has, if it has come as far as the watch and our tickets.
// A compaction takes nothing away that is needed, and a watch that was lost is
// begun anew and followed by a look; the look once a second has the members
// agree, for the one we ask may be cut off.
//
// Members. A request goes to one member, and to the next one as well where that
// is silent; each may be carried out twice. See cluster.
//
// Lease. All tickets of a process hang on one lease, and go with it if the
// process dies. A lease can run out under a process that lives: it was stopped,
// or cut off. So the process counts itself, on a clock that goes on while the
// machine is suspended, from the sending of the last keep-alive that was
// answered, less a margin (a fifth of the time to live, at least half a second).
// At that deadline nobody enters any more, who waits is refused, who is inside
// is told to stop ([serializer.ErrLost]), and the next arrival waits for a new
// lease. A process that etcd does not let write stops renewing: it could not
// delete its tickets, and the others would wait for them.
//
// # Why it is safe, and how far
//
// While all processes run and their clocks tick at about the same rate, a
// process stops believing in its lease before etcd ends it; then no two are
// inside. If a process is stopped (a long pause, SIGSTOP, a frozen machine)
// between two instructions, nothing in it can notice, and it may go on inside
// after its lease has ended, until it wakes and its timer fires. No lock by
// lease can do better. What can is the place behind the queue: if it refuses
// tokens smaller than the greatest it has seen, a late one does no harm.
//
// # What was rejected
//
// concurrency.Mutex of etcd's client: its key is the lease, so two requests of
// one process both hold it; and its watches begin in the past. The client
// library itself: see member. One watch on
// the whole queue in each process, with all lines in memory: less code, but
// each ticket that comes or goes is sent to all machines. Sorting by etcd
// (WithLastCreate): the server reads the whole queue for it, each time. Several
// tickets in one transaction: they would have the same number.
//
// # What remains imperfect
//
// A request that was refused because the queue was full has had a ticket for a
// moment, by which another that comes in that moment may be refused, too. A
// request to etcd without an answer may be carried out long after, even after
// the ticket was made by another, used and deleted; then it stands again, and
// nobody's. The queue is searched for such ones for a minute, and they go with
// the lease at the latest. A leader of etcd that was cut off can still answer
// keep-alives until it knows; the margin should be more than the cluster's
// election timeout (1 s by default), so a time to live below 5 s relies on the
// token. A cluster restored from a backup may number its keys from an earlier
// revision; see etcd's --bump-revision.
type Engine struct {
	keys    keyspace
	where   string // the endpoints, for people
	owner   string // this process, for people
	ttl     time.Duration
	cluster *cluster
	clock   func() time.Duration // what leases are measured by
	now     func() time.Time     // for people
	log     *slog.Logger
	ctx     context.Context // done when the engine has been closed and left
	stop    context.CancelFunc
	ended   chan struct{}

	mu      sync.Mutex
	session *session      // nil while there is no lease
	failure error         // why the last attempt to get one failed; nil while one is under way
	changed chan struct{} // closed and replaced when session or failure change
	tickets int           // of ours that are out
	closed  bool

	logged     string // the failure that was logged last
	complained time.Time
	watchLag   time.Duration // of the last deletion of ours that was told
	lost       atomic.Uint64 // leases
}

// Options say where and how an [Engine] keeps its queues.
type Options struct {
	// Endpoints are the URLs of the cluster's members, such as
	// https://10.0.0.1:2379. At least one is needed.
	Endpoints []string

	// Namespace begins all keys. Queues in different namespaces have nothing
	// to do with each other. No namespace should begin with another one and
	// a slash. Default: orderly/.
	Namespace string

	// TTL is the time to live of the process's lease: for how long others
	// wait for a process that died or is cut off. Whole seconds, 2s or more.
	// Default: 10s.
	TTL time.Duration

	// Username and Password are those of etcd's authentication. Default: none.
	Username, Password string

	// TLS is needed for https endpoints. Default: none.
	TLS *tls.Config

	// Clock tells people when a ticket was taken. The order does not depend
	// on it. Default: [time.Now].
	Clock func() time.Time

	// Log hears of leases that are had and lost. Default: none.
	Log *slog.Logger
}

// What [Options] stand for if they are left out, and the least TTL.
const (
	DefaultNamespace = "orderly/"
	DefaultTTL       = 10 * time.Second
	MinTTL           = 2 * time.Second
	MaxTTL           = time.Hour
)

// Open makes an engine. It does not wait for the cluster: until there is a
// lease, arrivals are refused with [serializer.ReasonStorage], and the engine
// goes on trying. The error is for options that cannot be.
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

// Path is the engine's name for where it keeps its queues.
func (e *Engine) Path() string { return "etcd:" + strings.TrimSuffix(string(e.keys), "/") }

// run keeps a session, until the engine is closed and left.
func (e *Engine) run() {
	defer close(e.ended)
	defer e.giveBack()
	for e.ctx.Err() == nil {
		s, err := e.begin(e.ctx)
		if err != nil {
			e.fail(err)
			sleep(e.ctx, 5*retryPause)
			continue
		}
		if e.use(s) {
			e.log.Info("have a lease from etcd", "endpoints", e.where, "namespace", string(e.keys), "lease", fmt.Sprintf("%x", s.id), "ttl", s.ttl)
			go s.heedEvictions()
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
	e.announce(nil)
	return true
}

// fail notes that there is no session, and logs that when the reason is new.
func (e *Engine) fail(err error) {
	e.mu.Lock()
	first := e.failure == nil || e.logged != err.Error()
	e.announce(err)
	e.logged = err.Error()
	e.mu.Unlock()
	if first && e.ctx.Err() == nil {
		e.log.Warn("etcd cannot be used; requests are refused until it can", "endpoints", e.where, "namespace", string(e.keys), "error", err)
	}
}

// announce tells those who wait for a session. The caller holds the lock.
func (e *Engine) announce(failure error) {
	e.failure = failure
	close(e.changed)
	e.changed = make(chan struct{})
}

// current returns the session. While the engine is just asking for a lease, it
// waits for the answer.
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
	p, err := e.arrive(s, a)
	if err != nil {
		return nil, refusal(a, 0, 0, err)
	}
	if err := p.await(ctx); err != nil {
		return e.settle(p, err)
	}
	if !e.holds(p) {
		return nil, refusal(a, p.position, p.Token(), serializer.ErrLost)
	}
	return p, nil
}

// holds looks at the lease once more, after the wait: the process may have
// been stopped, or the machine suspended, since the turn came.
func (e *Engine) holds(p *place) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p.session.stands() {
		return true
	}
	p.session.drop(p)
	return false
}

// settle ends a wait that did not end with the turn; except that the turn may
// have come in the same moment as the timeout, and then stands.
func (e *Engine) settle(p *place, err error) (serializer.Turn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p.granted && errors.Is(err, serializer.ErrTimeout) && p.session.stands() {
		return p, nil
	}
	p.refused = true
	if p.joined || p.vanished {
		p.session.drop(p)
	} // else take gives the ticket back when it has come
	return nil, refusal(p.arrival, p.position, p.Token(), err)
}

// leave hands the turn on.
func (e *Engine) leave(p *place) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p.session.drop(p)
}

// Close implements [serializer.Engine]. Where no turn is out, it gives the
// lease back; else the last one to leave does.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	e.announce(e.failure)
	left := e.stopIfLeft()
	e.mu.Unlock()
	if left {
		<-e.ended
	}
	return nil
}

// ticketGone counts a ticket of ours that is no longer out. The caller holds
// the lock.
func (e *Engine) ticketGone() {
	e.tickets--
	e.stopIfLeft()
}

// stopIfLeft ends a closed engine that nobody uses. The caller holds the lock.
func (e *Engine) stopIfLeft() bool {
	if !e.closed || e.tickets > 0 {
		return false
	}
	e.stop()
	return true
}

// giveBack ends the last session: with the lease go all keys that are not
// deleted yet.
func (e *Engine) giveBack() {
	e.mu.Lock()
	s := e.session
	if s != nil {
		s.finish()
	}
	e.mu.Unlock()
	if s != nil {
		ctx, cancel := context.WithTimeout(context.Background(), attemptTime(0))
		defer cancel()
		if err := e.revoke(ctx, s.id); err != nil {
			e.log.Warn("giving the lease back failed; it will run out", "namespace", string(e.keys), "lease", fmt.Sprintf("%x", s.id), "error", err)
		}
	}
	e.cluster.close()
}

// complain logs an error that is nobody's in particular, once a second.
func (s *session) complain(queue string, err error) {
	e := s.engine
	e.mu.Lock()
	quiet := s.over || time.Since(e.complained) < time.Second
	if !quiet {
		e.complained = time.Now()
	}
	e.mu.Unlock()
	if !quiet {
		e.log.Error("asking etcd failed; trying again", "namespace", string(e.keys), "queue", queue, "error", err)
	}
}

var _ serializer.Engine = (*Engine)(nil)

package etcd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// session is the time for which one lease stands. All tickets that the process
// takes in this time hang on the lease, and all lines are known only for it.
type session struct {
	engine *Engine
	id     int64 // of the lease
	ttl    time.Duration
	ctx    context.Context // done when the session is over
	end    context.CancelFunc

	// The rest belongs to the engine's lock.

	deadline time.Duration // by the engine's clock; see margin
	renewed  time.Duration // when the last keep-alive that was answered was sent
	timer    *time.Timer
	over     bool
	denial   error // why etcd refuses what we write, for now
	trouble  error // why the last keep-alive failed
	lines    map[string]*line
	places   map[string]*place // whose keys stand or may come to stand
	insiders int               // left when the session was lost

	deletions []deletion              // to be sent
	answered  map[int64]time.Duration // when, by revision: deletions that our watch has not told yet
	leaving   map[string]int64        // the keys of those, and of those sent and not answered yet; the tickets' revisions
	deleters  int
	deleted   int64    // the revision of the last one that was answered
	missing   []*place // whose keys were deleted by somebody else, while they waited
	searching bool     // for the reason
}

// begin asks for a lease. Its ID is of our own making, so that asking twice
// makes one lease.
func (e *Engine) begin(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, beginTime)
	defer cancel()
	s := &session{
		engine:  e,
		id:      1 + rand.Int64N(math.MaxInt64),
		lines:   make(map[string]*line),
		places:  make(map[string]*place),
		leaving: make(map[string]int64),

		answered: make(map[int64]time.Duration),
	}
	var sent time.Duration
	var ttl int64
	var err error
	for range beginTries {
		if sent, ttl, err = e.askLease(ctx, s.id); err == nil || !transient(err) || ctx.Err() != nil {
			break
		}
		sleep(ctx, retryPause)
	}
	if err != nil {
		go s.forget(e.clock() + e.ttl) // it may have been made
		return nil, fmt.Errorf("asking etcd for a lease: %w", silence(e.cluster.diagnose(err)))
	}
	s.ctx, s.end = context.WithCancel(e.ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	s.extend(sent, ttl)
	return s, nil
}

// beginTime is how long to wait for a lease and, before it, for a login. A
// connection may break just then, so one failure says little.
const (
	beginTime  = 2 * time.Second
	beginTries = 3
)

// askLease asks for a lease, once, and whether it can be of use. sent is from
// when on it may run out.
func (e *Engine) askLease(ctx context.Context, id int64) (sent time.Duration, ttl int64, err error) {
	sent = e.clock()
	ttl, err = ask(ctx, e.cluster, func(ctx context.Context, m *member) (int64, error) {
		return m.grant(ctx, id, int64(e.ttl/time.Second))
	})
	if err == nil {
		err = e.checkRights(ctx)
	}
	return sent, ttl, err
}

// silence says in words that nobody has answered.
func silence(err error) error {
	if err == context.DeadlineExceeded { // and nothing more is known
		return fmt.Errorf("no member answered within %s: %w", beginTime, err)
	}
	return err
}

// checkRights finds out whether the user may read and write the namespace. A
// lease can be had and kept without.
func (e *Engine) checkRights(ctx context.Context) error {
	key := string(e.keys) + probe
	_, err := e.ask(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{erase(key, ""), get(keyOf(key))}})
	return err
}

// request carries out a transaction that may be carried out twice, within the
// time that one request to etcd may take.
func (e *Engine) request(ctx context.Context, txn *pb.TxnRequest) (*pb.TxnResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, longestAttempt)
	defer cancel()
	return e.ask(ctx, txn)
}

func (e *Engine) ask(ctx context.Context, txn *pb.TxnRequest) (*pb.TxnResponse, error) {
	return ask(ctx, e.cluster, func(ctx context.Context, m *member) (*pb.TxnResponse, error) { return m.commit(ctx, txn) })
}

// watch begins to watch, at the member that is preferred. One that does not
// answer is not preferred any more.
func (s *session) watch(tries int, request *pb.WatchCreateRequest, heed func([]*mvccpb.Event), lost func()) (*watch, int64, error) {
	c := s.engine.cluster
	ctx, cancel := context.WithTimeout(s.ctx, c.patience<<min(tries, 3))
	defer cancel()
	m := c.current()
	w, rev, err := m.watch(ctx, request, heed, lost)
	if err != nil && s.ctx.Err() == nil && !denied(err) {
		c.distrust(m)
	}
	return w, rev, err
}

// margin is what the deadline keeps from the end of the lease: for the time
// that the request inside needs to stop, for clocks that run at different
// speeds, and for an etcd leader that was deposed and does not know it yet.
func margin(ttl time.Duration) time.Duration { return max(ttl/5, 500*time.Millisecond) }

// extend moves the deadline. It counts from when the keep-alive was sent, for
// etcd cannot have renewed the lease before. The caller holds the lock.
func (s *session) extend(sent time.Duration, seconds int64) {
	s.ttl = time.Duration(seconds) * time.Second
	deadline := sent + s.ttl - margin(s.ttl)
	if s.timer != nil && (!s.stands() || deadline <= s.deadline) {
		return // an answer after the deadline comes too late
	}
	s.renewed, s.deadline, s.trouble = sent, deadline, nil
	if s.timer == nil {
		s.timer = time.AfterFunc(s.nextCheck(), s.expire)
	}
}

// stands reports whether the process may rely on the lease. The caller holds
// the lock.
func (s *session) stands() bool { return !s.over && s.engine.clock() < s.deadline }

// errDeadline is why a lease is given up: etcd may let it run out soon.
var errDeadline = errors.New("no keep-alive was answered in time")

// deadlineCheck is the longest time between two looks at the clock: timers
// stand still while the machine is suspended.
const deadlineCheck = 200 * time.Millisecond

// nextCheck is when to look at the clock again. The caller holds the lock.
func (s *session) nextCheck() time.Duration { return min(s.deadline-s.engine.clock(), deadlineCheck) }

// expire loses the session at its deadline.
func (s *session) expire() {
	e := s.engine
	e.mu.Lock()
	stands, cause := s.stands(), errDeadline
	switch {
	case stands:
		s.timer.Reset(s.nextCheck())
	case s.denial != nil:
		cause = fmt.Errorf("etcd refuses to write: %w", s.denial)
	case s.trouble != nil:
		cause = fmt.Errorf("%w: %w", errDeadline, s.trouble)
	}
	e.mu.Unlock()
	if !stands {
		s.lose(cause)
	}
}

// keepAlive renews the lease until the session is over.
func (s *session) keepAlive() {
	every := s.ttl / 4
	pause := every
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(pause):
		}
		if pause = every; s.renew(every) != nil {
			pause = retryPause
		}
	}
}

// renew has etcd keep the lease. A process that may no longer write lets its
// lease run out: it could not delete its tickets, and all others would wait for
// them. It is renewed again once etcd lets the user write.
func (s *session) renew(timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(s.ctx, min(timeout, attemptTime(1)))
	defer cancel()
	e := s.engine
	if s.denialNow() != nil {
		err := e.checkRights(ctx)
		s.noteDenial(err)
		if err != nil {
			return err
		}
	}
	sent := e.clock()
	ttl, err := ask(ctx, e.cluster, func(ctx context.Context, m *member) (int64, error) { return m.keepAlive(ctx, s.id) })
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		s.lose(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		s.trouble = err
		return err
	}
	s.extend(sent, ttl)
	return nil
}

// noteDenial notes whether etcd lets us write.
func (s *session) noteDenial(err error) {
	if err != nil && !denied(err) {
		return
	}
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	s.denial = err
}

func (s *session) denialNow() error {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	return s.denial
}

// lose ends the session: who waits is refused, who is inside is told to go, and
// nobody enters until the engine has another lease.
func (s *session) lose(cause error) {
	e := s.engine
	err := fmt.Errorf("%w: lease %x: %w", serializer.ErrLost, s.id, cause)
	e.mu.Lock()
	if s.over {
		e.mu.Unlock()
		return
	}
	s.finish()
	waiting := 0
	var revokes []func(error)
	for key, p := range s.places {
		if !p.granted {
			delete(s.places, key)
			e.ticketGone()
			waiting++
			p.refuse(lossOf(p, err))
			continue
		}
		if revoke := p.takeRevoke(); revoke != nil {
			revokes = append(revokes, revoke)
		}
	}
	s.insiders = len(s.places)
	inside := s.insiders
	e.mu.Unlock()

	for _, revoke := range revokes {
		revoke(err)
	}
	e.log.Warn("the lease was lost; those inside are told to stop, those who wait are refused",
		"namespace", string(e.keys), "inside", inside, "waiting", waiting, "error", cause)
	e.lost.Add(1)
	if inside == 0 {
		go s.forget(e.clock() + 2*s.ttl)
	}
}

// lossOf tells one who waits why it will not enter. Without a ticket yet, it
// has nothing to lose: then the storage has failed it.
func lossOf(p *place, lost error) error {
	if p.joined {
		return lost
	}
	return &serializer.StorageError{Op: "taking a ticket from etcd", Path: p.session.engine.where, Err: lost}
}

// finish ends the session without telling anybody. The caller holds the lock.
func (s *session) finish() {
	s.over = true
	s.timer.Stop()
	s.end()
	if s.engine.session == s {
		s.engine.session = nil
		s.engine.announce(nil)
	}
}

// forget gives the lease back once nobody of its time is inside any more, so
// that others need not wait for it to run out. It tries until then: without a
// majority of its members, etcd ends none.
func (s *session) forget(until time.Duration) {
	e := s.engine
	for e.ctx.Err() == nil && e.clock() < until {
		ctx, cancel := context.WithTimeout(e.ctx, attemptTime(0))
		err := e.revoke(ctx, s.id)
		cancel()
		if err == nil {
			return
		}
		sleep(e.ctx, retryPause)
	}
}

// revoke ends a lease, if it is there.
func (e *Engine) revoke(ctx context.Context, lease int64) error {
	_, err := ask(ctx, e.cluster, func(ctx context.Context, m *member) (struct{}, error) { return struct{}{}, m.revoke(ctx, lease) })
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return err
}

// search finds out why tickets that waited are gone: the lease has ended, or
// somebody has deleted them.
func (s *session) search() {
	for s.ctx.Err() == nil {
		missing := s.nextMissing()
		if missing == nil {
			return
		}
		for s.ctx.Err() == nil && s.renew(attemptTime(1)) != nil {
			sleep(s.ctx, retryPause)
		}
		if s.ctx.Err() == nil {
			s.evicted(missing)
		}
	}
}

func (s *session) nextMissing() (missing []*place) {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	missing, s.missing = s.missing, nil
	s.searching = missing != nil
	return missing
}

// evicted refuses tickets that somebody deleted.
func (s *session) evicted(places []*place) {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	for _, p := range places {
		p.refuse(serializer.ErrEvicted)
		s.drop(p)
	}
}

// drop gives up a place: it leaves the line, if it is in it, and its key is
// deleted. The caller holds the lock.
func (s *session) drop(p *place) {
	if s.places[p.key] != p {
		return
	}
	delete(s.places, p.key)
	s.engine.ticketGone()
	if s.over {
		if s.insiders--; s.insiders == 0 {
			go s.forget(s.engine.clock() + 2*s.ttl)
		}
		return
	}
	left := p.granted && strict(&p.entry) && !p.vanished
	if p.joined && !p.missing() {
		p.line.remove(&p.entry)
	}
	slot := p.slot
	if p.doubtful {
		slot = 0
	}
	s.remove(deletion{line: p.line, key: p.key, rev: p.rev, slot: slot, left: left})
	p.line.update()
}

const retryPause = 100 * time.Millisecond

// attemptTime is how long to wait for an answer of the cluster, before it is
// asked again.
func attemptTime(tries int) time.Duration { return time.Second << min(tries/3, 2) }

// longestAttempt is for requests that are not sent again.
const longestAttempt = 5 * time.Second

// sleep waits, or until ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

package etcd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// newLeaseID chooses the ID of a lease. Requests for the lease are repeated with the same
// ID until one is answered, so that none leaves a second lease behind.
func newLeaseID() int64 { return 1 + rand.Int64N(math.MaxInt64) }

// begin requests the lease with the given ID.
func (e *Engine) begin(ctx context.Context, id int64) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, beginTime)
	defer cancel()
	s := &session{
		engine:  e,
		id:      id,
		queues:  make(map[string]*ticketQueue),
		tickets: make(map[string]*ticket),
		leaving: make(map[string]int64),
		pauses:  make(map[string]knownPause),

		answered: make(map[int64]time.Duration),
	}
	var sent time.Duration
	var lease leaseAnswer
	var err error
	for range beginTries {
		if sent, lease, err = e.askLease(ctx, s.id); err == nil || !transient(err) || ctx.Err() != nil {
			break
		}
		sleep(ctx, retryPause)
	}
	if err != nil {
		return nil, fmt.Errorf("asking etcd for a lease: %w", silence(e.cluster.diagnose(err)))
	}
	s.ttl, s.clusterID = time.Duration(lease.ttl)*time.Second, lease.header.GetClusterId()
	s.ctx, s.end = context.WithCancel(e.ctx)
	if err := s.readPauses(ctx); err != nil {
		s.end()
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s.extendLocked(sent, lease.ttl)
	return s, nil
}

// beginTime is how long to wait for a login and a lease together. A connection may break
// at that moment, so a single failure means little.
const (
	beginTime  = 2 * time.Second
	beginTries = 3
)

// askLease requests a lease once, and checks the user's rights. The lease's time to live
// counts from sent. If the lease already exists, an earlier request whose answer was lost
// has obtained it. It counts from that request, so it must be renewed.
func (e *Engine) askLease(ctx context.Context, id int64) (sent time.Duration, lease leaseAnswer, err error) {
	sent = e.clock()
	lease, err = ask(ctx, e.cluster, func(ctx context.Context, m *member) (leaseAnswer, error) {
		return m.grant(ctx, id, int64(e.ttl/time.Second))
	})
	if errors.Is(err, rpctypes.ErrLeaseExist) {
		sent = e.clock()
		lease, err = e.renew(ctx, id)
	}
	if err == nil {
		err = e.checkRights(ctx)
	}
	return sent, lease, err
}

// renew renews a lease, once.
func (e *Engine) renew(ctx context.Context, id int64) (leaseAnswer, error) {
	return ask(ctx, e.cluster, func(ctx context.Context, m *member) (leaseAnswer, error) { return m.keepAlive(ctx, id) })
}

// silence explains an error that only says that the time is up.
func silence(err error) error {
	if err == context.DeadlineExceeded { // and nothing more is known
		return fmt.Errorf("no member answered within %s: %w", beginTime, err)
	}
	return err
}

// checkRights checks that the user may read and write the namespace. etcd grants and
// renews leases even without these rights.
func (e *Engine) checkRights(ctx context.Context) error {
	key := string(e.keys) + probe
	_, err := e.request(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{erase(key, ""), get(keyOf(key))}})
	return err
}

// margin is the time between the deadline and the end of the lease. It covers the time
// that a holder needs to stop, and clocks that run at different speeds. It also covers
// a deposed etcd leader that has not noticed it yet.
func margin(ttl time.Duration) time.Duration { return max(ttl/5, 500*time.Millisecond) }

// extendLocked moves the deadline. It counts from when the keep-alive was sent, because
// etcd cannot have renewed the lease earlier.
func (s *session) extendLocked(sent time.Duration, seconds int64) {
	ttl := time.Duration(seconds) * time.Second
	deadline := sent + ttl - margin(ttl)
	if s.timer != nil && (!s.standsLocked() || deadline <= s.deadline) {
		return // the answer came too late, or out of order
	}
	s.renewed, s.deadline, s.trouble = sent, deadline, nil
	if s.timer == nil {
		s.timer = time.AfterFunc(s.nextCheckLocked(), s.expire)
	}
}

// standsLocked reports whether the process may rely on the lease.
func (s *session) standsLocked() bool { return !s.over && s.engine.clock() < s.deadline }

// errDeadline is why a lease is given up before etcd ends it.
var errDeadline = errors.New("no keep-alive was answered in time")

// deadlineCheck is the longest time between two checks of the clock: timers do not
// advance while the machine is suspended.
const deadlineCheck = 200 * time.Millisecond

// nextCheckLocked is how long to wait before the next check of the clock.
func (s *session) nextCheckLocked() time.Duration {
	return min(s.deadline-s.engine.clock(), deadlineCheck)
}

// expire ends the session at its deadline.
func (s *session) expire() {
	e := s.engine
	e.mu.Lock()
	stands, cause := s.standsLocked(), errDeadline
	switch {
	case stands:
		s.timer.Reset(s.nextCheckLocked())
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

// renew renews the lease. A process that may no longer write lets its lease expire: it
// could not delete its tickets, and all others would wait for them. It renews again once
// etcd lets the user write.
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
	lease, err := e.renew(ctx, s.id)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		s.lose(err)
	}
	if err == nil {
		err = s.checkReached(lease.header)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		s.trouble = err
		return err
	}
	s.extendLocked(sent, lease.ttl)
	return nil
}

// noteDenial notes whether etcd lets the user write.
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

// forgetIfLeftLocked revokes a lost lease once its last holder has left, so that others
// need not wait for its end.
func (s *session) forgetIfLeftLocked() {
	if len(s.tickets) == 0 {
		go s.forget()
	}
}

// forget keeps trying to revoke a lease until it has ended: without a majority of its
// members, etcd revokes no lease.
func (s *session) forget() {
	e := s.engine
	until := e.clock() + 2*s.ttl
	for pause := retryPause; e.ctx.Err() == nil && e.clock() < until; pause = min(2*pause, maxForgetPause) {
		if e.revoke(e.ctx, s.id) == nil {
			return
		}
		sleep(e.ctx, pause)
	}
}

const maxForgetPause = time.Second

// revoke ends a lease, if there is one.
func (e *Engine) revoke(ctx context.Context, lease int64) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTime(0))
	defer cancel()
	_, err := ask(ctx, e.cluster, func(ctx context.Context, m *member) (struct{}, error) { return struct{}{}, m.revoke(ctx, lease) })
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return err
}

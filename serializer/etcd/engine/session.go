package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// session is the time for which one lease stands. All tickets that the process
// takes in this time hang on the lease, and all lines are known only for it.
type session struct {
	engine *Engine
	client *clientv3.Client
	id     clientv3.LeaseID
	ttl    time.Duration
	ctx    context.Context // done when the session is over
	end    context.CancelFunc

	// The rest belongs to the engine's lock.

	deadline time.Time // on the monotonic clock; see margin
	timer    *time.Timer
	over     bool
	lines    map[string]*line
	places   map[string]*place // whose keys stand or may come to stand
	insiders int               // left when the session was lost

	deletions []deletion       // to be sent
	leaving   map[string]int64 // the keys of those, and of those sent and not answered yet; the tickets' revisions
	deleters  int
	deleted   int64 // the revision of the last one that was answered
}

// begin asks for a lease.
func (e *Engine) begin(ctx context.Context) (*session, error) {
	client, err := e.connect()
	if err != nil {
		return nil, fmt.Errorf("connecting to etcd: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTime(0))
	defer cancel()
	sent := time.Now()
	granted, err := client.Grant(ctx, int64(e.ttl/time.Second))
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("asking etcd for a lease: no member answered within %s: %w", attemptTime(0), err)
	}
	if err != nil {
		return nil, fmt.Errorf("asking etcd for a lease: %w", err)
	}
	s := &session{
		engine:  e,
		client:  client,
		id:      granted.ID,
		lines:   make(map[string]*line),
		places:  make(map[string]*place),
		leaving: make(map[string]int64),
	}
	s.ctx, s.end = context.WithCancel(e.ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	s.extend(sent, granted.TTL)
	return s, nil
}

// margin is what the deadline keeps from the end of the lease: for the time
// that the request inside needs to stop, for clocks that run at different
// speeds, and for an etcd leader that was deposed and does not know it yet.
func margin(ttl time.Duration) time.Duration { return max(ttl/5, 500*time.Millisecond) }

// extend moves the deadline. It counts from when the keep-alive was sent, for
// etcd cannot have renewed the lease before. The caller holds the lock.
func (s *session) extend(sent time.Time, seconds int64) {
	s.ttl = time.Duration(seconds) * time.Second
	deadline := sent.Add(s.ttl - margin(s.ttl))
	if s.timer == nil {
		s.deadline = deadline
		s.timer = time.AfterFunc(time.Until(deadline), s.expire)
		return
	}
	if !s.stands() || !deadline.After(s.deadline) {
		return // an answer after the deadline comes too late
	}
	s.deadline = deadline
	s.timer.Reset(time.Until(deadline))
}

// stands reports whether the process may rely on the lease. The caller holds
// the lock.
func (s *session) stands() bool { return !s.over && time.Now().Before(s.deadline) }

// errDeadline is why a lease is given up: etcd may let it run out soon.
var errDeadline = errors.New("no keep-alive was answered in time")

func (s *session) expire() {
	s.engine.mu.Lock()
	renewed := s.stands() // in the same moment
	s.engine.mu.Unlock()
	if !renewed {
		s.lose(errDeadline)
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
		switch err := s.renew(every); {
		case err == nil:
			pause = every
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			s.lose(err)
		default:
			pause = retryPause
		}
	}
}

func (s *session) renew(timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(s.ctx, min(timeout, attemptTime(1)))
	defer cancel()
	sent := time.Now()
	answer, err := s.client.KeepAliveOnce(ctx, s.id)
	if err != nil {
		return err
	}
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	s.extend(sent, answer.TTL)
	return nil
}

// lose ends the session: who waits is refused, who is inside is told to go, and
// nobody enters until the engine has another lease.
func (s *session) lose(cause error) {
	e := s.engine
	err := fmt.Errorf("%w: lease %x: %w", serializer.ErrLost, int64(s.id), cause)
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
	if inside == 0 {
		go s.forget()
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
// that others need not wait for it to run out. It tries for as long as the
// lease stands: without a majority of its members, etcd ends none.
func (s *session) forget() {
	for s.engine.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(s.engine.ctx, attemptTime(0))
		_, err := s.client.Revoke(ctx, s.id)
		cancel()
		if err == nil || errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return
		}
		sleep(s.engine.ctx, retryPause)
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
			go s.forget()
		}
		return
	}
	if p.joined {
		p.line.remove(&p.entry)
	}
	slot := p.slot
	if p.doubtful {
		slot = 0
	}
	s.remove(deletion{p.line, p.key, p.rev, slot})
	p.line.update()
}

const retryPause = 100 * time.Millisecond

// attemptTime is how long to wait for an answer from one member of the cluster,
// before another one is asked.
func attemptTime(tries int) time.Duration { return time.Second << min(tries, 2) }

// sleep waits, or until ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

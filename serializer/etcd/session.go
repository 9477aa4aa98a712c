package etcd

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// session is the lifetime of one lease. All tickets that the process takes in this time
// belong to the lease, and what it knows about queues ends with it.
type session struct {
	engine *Engine
	id     int64 // of the lease
	ttl    time.Duration
	ctx    context.Context // done when the session is over
	end    context.CancelFunc

	clusterID uint64 // of the cluster that granted the lease

	// Engine.mu guards the rest.

	deadline time.Duration // by the engine's clock; see margin
	renewed  time.Duration // when the last answered keep-alive was sent
	timer    *time.Timer
	over     bool
	revision int64 // the greatest that etcd has reported
	denial   error // why etcd refuses writes at the moment
	trouble  error // why the last keep-alive failed
	queues   map[string]*ticketQueue
	tickets  map[string]*ticket // by key; the key exists or may come to exist
	insiders int                // remaining holders of a lost session

	pauses  map[string]knownPause // by the name of the queue or group
	unpause *time.Timer           // runs at the first end of a pause

	deletions []deletion              // to be sent
	answered  map[int64]time.Duration // by revision: when a deletion was answered that the watch has not reported yet, or the other way round
	leaving   map[string]int64        // revisions of tickets by key: deletions that are to be sent or not answered yet
	deleters  int
	deleted   int64     // the revision of the last answered deletion
	missing   []*ticket // waiters whose keys somebody else deleted
	searching bool      // a goroutine is finding out why they are missing
}

// request sends a transaction once, within the time allowed for one request. etcd may
// carry it out twice.
func (e *Engine) request(ctx context.Context, txn *pb.TxnRequest) (*pb.TxnResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, longestAttempt)
	defer cancel()
	return e.ask(ctx, txn)
}

func (e *Engine) ask(ctx context.Context, txn *pb.TxnRequest) (*pb.TxnResponse, error) {
	answer, _, err := e.askSeveral(ctx, txn)
	return answer, err
}

// askSeveral also returns whether several members were asked. A silent member may carry
// out the transaction long after another one's answer.
func (e *Engine) askSeveral(ctx context.Context, txn *pb.TxnRequest) (answer *pb.TxnResponse, several bool, err error) {
	var asked atomic.Int32
	answer, err = ask(ctx, e.cluster, func(ctx context.Context, m *member) (*pb.TxnResponse, error) {
		asked.Add(1)
		return m.commit(ctx, txn)
	})
	return answer, asked.Load() > 1, err
}

// watch begins a watch at the preferred member. A member that does not answer is no
// longer preferred.
func (s *session) watch(tries int, request *pb.WatchCreateRequest, handle func([]*mvccpb.Event), lost func()) (*watch, int64, error) {
	c := s.engine.cluster
	ctx, cancel := context.WithTimeout(s.ctx, c.patience<<min(tries, 3))
	defer cancel()
	m := c.current()
	w, rev, err := m.watch(ctx, request, handle, lost)
	if err != nil && s.ctx.Err() == nil && !denied(err) {
		c.distrust(m)
	}
	s.reach(rev)
	return w, rev, err
}

// lose ends the session: waiters are refused, holders are revoked, and nobody
// enters until the engine has another lease.
func (s *session) lose(cause error) {
	e := s.engine
	err := fmt.Errorf("%w: lease %x: %w", serializer.ErrLost, s.id, cause)
	e.mu.Lock()
	if s.over {
		e.mu.Unlock()
		return
	}
	s.finishLocked()
	waiting := 0
	var revokes []func(error)
	for key, t := range s.tickets {
		if !t.granted {
			delete(s.tickets, key)
			e.ticketGoneLocked()
			waiting++
			t.refuseLocked(lossOfLocked(t, err))
			continue
		}
		if revoke := t.takeRevokeLocked(); revoke != nil {
			revokes = append(revokes, revoke)
		}
	}
	s.insiders = len(s.tickets)
	inside := s.insiders
	e.mu.Unlock()

	for _, revoke := range revokes {
		revoke(err)
	}
	e.log.Warn("the lease was lost; holders are told to stop, and waiters are refused",
		"namespace", string(e.keys), "inside", inside, "waiting", waiting, "error", cause)
	e.lost.Add(1)
	if inside == 0 {
		go s.forget(e.clock() + 2*s.ttl)
	}
}

// lossOfLocked is why a waiter is refused when the session is lost. If it had no ticket yet,
// there was nothing to lose: then the storage has failed.
func lossOfLocked(t *ticket, lost error) error {
	if t.joined {
		return lost
	}
	return &serializer.StorageError{Op: "taking a ticket from etcd", Path: t.session.engine.where, Err: lost}
}

// finishLocked ends the session without notifying waiters and holders.
func (s *session) finishLocked() {
	s.over = true
	s.timer.Stop()
	if s.unpause != nil {
		s.unpause.Stop()
	}
	s.end()
	if s.engine.session == s {
		s.engine.session = nil
		s.engine.announceLocked(nil)
	}
}

// search finds out why tickets of waiters are missing: either the lease has ended, or
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

func (s *session) nextMissing() (missing []*ticket) {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	missing, s.missing = s.missing, nil
	s.searching = missing != nil
	return missing
}

// evicted refuses waiters whose tickets somebody has deleted.
func (s *session) evicted(waiters []*ticket) {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	for _, t := range waiters {
		t.refuseLocked(serializer.ErrEvicted)
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
		if s.insiders--; s.insiders == 0 {
			go s.forget(s.engine.clock() + 2*s.ttl)
		}
		return
	}
	left := t.granted && t.Rule.Alone() && !t.vanished
	if t.joined && !t.deletedWaitingLocked() {
		t.queue.removeLocked(t)
	}
	slot := t.slot
	if t.doubtful {
		slot = 0
	}
	s.deleteLocked(deletion{queue: t.queue, key: t.key, rev: t.rev, slot: slot, left: left})
	t.queue.updateLocked()
}

// complain logs an error that concerns no particular caller, at most once a second.
func (s *session) complain(queue string, err error) {
	e := s.engine
	e.mu.Lock()
	over := s.over
	e.mu.Unlock()
	if over {
		return
	}
	if _, ok := e.failures.Allow(struct{}{}); ok {
		e.log.Error("a request to etcd failed; trying again", "namespace", string(e.keys), "queue", queue, "error", err)
	}
}

const retryPause = 100 * time.Millisecond

// attemptTime is how long to wait for the cluster's answer before a request is repeated.
func attemptTime(tries int) time.Duration { return time.Second << min(tries/3, 2) }

// longestAttempt is how long a request may take if it is not repeated.
const longestAttempt = 5 * time.Second

// sleep waits for d, or until ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

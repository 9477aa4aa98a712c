package etcd

import (
	"context"
	"fmt"
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

// watch begins a watch at the preferred member. A member that does not answer is no
// longer preferred.
func (s *session) watch(tries int, request *pb.WatchCreateRequest, handle func([]*mvccpb.Event), lost func()) (*watch, int64, error) {
	c := s.engine.cluster
	ctx, cancel := context.WithTimeout(s.ctx, c.patience<<min(tries, 3))
	defer cancel()
	preferred := c.preferred.Load()
	w, rev, err := c.members[preferred].watch(ctx, request, handle, lost)
	if err != nil && s.ctx.Err() == nil && !denied(err) {
		c.distrust(preferred)
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
		revokes = append(revokes, t.takeRevokeLocked())
	}
	inside := len(s.tickets)
	s.forgetIfLeftLocked()
	e.mu.Unlock()

	for _, revoke := range revokes {
		revoke(err)
	}
	e.log.Warn("the lease was lost; holders are told to stop, and waiters are refused",
		"namespace", string(e.keys), "inside", inside, "waiting", waiting, "error", cause)
	e.lost.Add(1)
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

package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

// session is the lifetime of one lease. All tickets that the process takes in this time
// belong to the lease, and what it knows about others ends with it.
type session struct {
	store     *Store
	id        clientv3.LeaseID
	ttl       time.Duration
	clusterID uint64 // of the cluster that granted the lease
	lease     *lease.Deadline
	ctx       context.Context // done when the session is over
	end       context.CancelCauseFunc
	denied    atomic.Bool           // etcd has refused a request, and may still refuse writes
	watch     atomic.Pointer[watch] // nil while there is none
	shown     atomic.Int64          // the watch has shown everything up to this revision

	// Store.mu guards the rest.

	over     bool
	tickets  map[string]*serializer.Ticket // that were reported and are not out, by key
	sent     map[string]*serializer.Ticket // that are on their way, by key
	batches  uint64
	local    int           // tickets that have joined and were not removed
	applied  int64         // all events up to this revision were reported; 0 before the first
	advanced chan struct{} // closed and replaced when these change
	removals []string      // keys to be deleted
	removers int           // goroutines that delete them
}

// run keeps a session until the store is closed.
func (st *Store) run() {
	for tries := 1; st.ctx.Err() == nil; tries++ {
		s, err := st.begin()
		if err == nil {
			s.lease.Keep(s.ctx, s.ttl, s.renew)
			tries = 0
			continue
		}
		// A connection may break at this moment, so a single failure means little.
		if tries >= 3 || errors.Is(err, context.DeadlineExceeded) || !transient(err) {
			st.fail(err)
		}
		lease.Sleep(st.ctx, 4*lease.RetryPause)
	}
}

// fail notes why there is no session, and logs it if the reason is new.
func (st *Store) fail(err error) {
	if st.now.Set(nil, err) && st.ctx.Err() == nil {
		st.log.Warn("etcd cannot be used; requests are refused until it can", "endpoints", st.where, "namespace", string(st.keys), "error", err)
	}
}

// begin requests a lease, and begins to follow.
func (st *Store) begin() (*session, error) {
	sent := lease.Uptime()
	granted, err := st.cluster.grant(st.ctx, st.ttl)
	if err == context.DeadlineExceeded { // and nothing more is known
		err = fmt.Errorf("no member answered within %s: %w", requestTime, err)
	}
	if err != nil {
		return nil, fmt.Errorf("asking etcd for a lease: %w", err)
	}
	s := &session{
		store: st, id: granted.ID, ttl: time.Duration(granted.TTL) * time.Second, clusterID: granted.ClusterId,
		tickets:  make(map[string]*serializer.Ticket),
		sent:     make(map[string]*serializer.Ticket),
		advanced: make(chan struct{}),
	}
	s.ctx, s.end = context.WithCancelCause(st.ctx)
	s.lease = lease.NewDeadline(nil, sent, s.ttl, s.lose)
	if err := s.start(); err != nil {
		s.lease.End(err)
		_ = st.cluster.revoke(st.ctx, s.id) // else it ends by itself
		return nil, err
	}
	return s, nil
}

// start begins to follow, and makes this the session that tickets are taken in.
func (s *session) start() error {
	st := s.store
	if err := s.register(); err != nil {
		return fmt.Errorf("registering in the namespace: %w", err)
	}
	w, err := s.follow()
	if err != nil {
		return err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if s.over {
		return context.Cause(s.ctx)
	}
	st.sessions[uint64(s.id)] = s
	st.now.Set(s, nil)
	go s.pass(w)
	go s.monitor()
	go st.log.Info("got a lease from etcd", "endpoints", st.where, "namespace", string(st.keys), "lease", fmt.Sprintf("%x", s.id), "ttl", s.ttl)
	return nil
}

// register puts a key that ends with the lease. That shows whether the user may read and
// write the namespace: etcd grants and renews leases even without these rights.
func (s *session) register() error {
	key := s.store.keys.session(s.id)
	_, err := s.store.cluster.commit(s.ctx, transaction{then: []clientv3.Op{s.put(key, s.store.owner.Name), clientv3.OpGet(key)}})
	return err
}

// put puts a key that belongs to the lease.
func (s *session) put(key, value string) clientv3.Op {
	return clientv3.OpPut(key, value, clientv3.WithLease(s.id))
}

// renew renews the lease. A process that may no longer write lets its lease expire: it
// could not delete its tickets, and all others would wait for them. It renews again once
// etcd lets the user write.
func (s *session) renew() error {
	return s.lease.Renew(func() (time.Duration, error) {
		if s.denied.Load() {
			if err := s.register(); err != nil {
				return 0, err
			}
			s.denied.Store(false)
		}
		ctx, cancel := context.WithTimeout(s.ctx, s.ttl/4)
		defer cancel()
		return s.store.cluster.renew(ctx, s.id)
	})
}

// persist sends a transaction until etcd has carried it out or refused it for good, or the
// session is over.
func (s *session) persist(txn transaction) (answer *clientv3.TxnResponse, err error) {
	for {
		answer, err = s.commit(s.ctx, txn)
		if err == nil || !transient(err) && !denied(err) || s.ctx.Err() != nil {
			return answer, err
		}
		lease.Sleep(s.ctx, lease.RetryPause)
	}
}

// commit sends a transaction once.
func (s *session) commit(ctx context.Context, txn transaction) (*clientv3.TxnResponse, error) {
	least := s.shown.Load()
	answer, err := s.store.cluster.commit(ctx, txn)
	if denied(err) {
		s.denied.Store(true)
	}
	if err != nil {
		return nil, err
	}
	return answer, s.checkHistory(answer.Header, least)
}

// errOtherHistory is why a session ends when etcd was restored from a backup. Tickets may
// then be missing, or exist again, whatever the state of the lease. What the process knows
// is based on revisions that etcd will use again.
var errOtherHistory = errors.New("etcd was restored from a backup, or the endpoints belong to several clusters")

// checkHistory ends the session if an answer comes from a different cluster than the
// lease, or from a revision below least. least is the revision that had been shown when
// the request was sent: etcd orders the request after it.
func (s *session) checkHistory(h *pb.ResponseHeader, least int64) error {
	if h.ClusterId == s.clusterID && h.Revision >= least {
		return nil
	}
	err := fmt.Errorf("%w: cluster %x is at revision %d; cluster %x was at %d", errOtherHistory, h.ClusterId, h.Revision, s.clusterID, least)
	s.lease.End(err)
	return err
}

// lose ends the session when its lease can no longer be relied on.
func (s *session) lose(cause error) {
	st, err := s.store, fmt.Errorf("%w: lease %x: %w", serializer.ErrLost, s.id, cause)
	st.mu.Lock()
	defer st.mu.Unlock()
	if s.over {
		return // the store is closed
	}
	s.over = true
	s.end(err)
	if st.now.Get() == s {
		st.now.Set(nil, nil)
	}
	if s.applied > 0 {
		st.events.Lost(err)
		s.forgetIfLeftLocked()
	}
}

// forgetIfLeftLocked revokes a lost lease once its last holder has left.
func (s *session) forgetIfLeftLocked() {
	if s.local == 0 {
		delete(s.store.sessions, uint64(s.id))
		go lease.Forget(s.store.ctx, s.ttl, func(ctx context.Context) error { return s.store.cluster.revoke(ctx, s.id) })
	}
}

package etcd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

// session is the lifetime of one lease. All tickets that the process takes in this time
// belong to the lease, and what it knows about tickets of other processes ends with it.
type session struct {
	*lease.Session
	store     *Store
	id        clientv3.LeaseID
	ttl       time.Duration
	clusterID uint64                // of the cluster that granted the lease
	denied    atomic.Bool           // etcd has refused a request, and may still refuse writes
	watch     atomic.Pointer[watch] // nil while there is none
	batches   uint64                // Append alone uses it
	shown     atomic.Int64          // the watch has shown everything up to this revision
	applied   int64                 // all events up to this revision were reported; 0 before the first; Store.Mu guards it
}

// Start implements [lease.Protocol].
func (s *session) Start() error {
	sent := lease.Uptime()
	granted, err := s.store.cluster.grant(s.Ctx, s.store.TTL)
	if err == context.DeadlineExceeded { // and nothing more is known
		err = fmt.Errorf("no member answered within %s: %w", requestTime, err)
	}
	if err != nil {
		return fmt.Errorf("asking etcd for a lease: %w", err)
	}
	s.id, s.ttl, s.clusterID = granted.ID, time.Duration(granted.TTL)*time.Second, granted.ClusterId
	s.Begin(fmt.Sprintf("%x", s.id), sent, s.ttl)
	if err := s.register(); err != nil {
		if errors.Is(err, lease.ErrElsewhere) {
			_ = s.Revoke(s.Ctx) // the next try requests another one
		}
		return fmt.Errorf("registering in the namespace: %w", err)
	}
	w, err := s.follow()
	if err != nil {
		return err
	}
	go s.pass(w)
	go s.monitor()
	for range maxRequests {
		go s.carryOut()
	}
	return nil
}

// Keep implements [lease.Protocol].
func (s *session) Keep() { s.Deadline.Keep(s.Ctx, s.ttl, s.renew) }

// Revoke implements [lease.Protocol].
func (s *session) Revoke(ctx context.Context) error { return s.store.cluster.revoke(ctx, s.id) }

// register puts a key that ends with the lease. That shows whether the user may read and
// write the namespace: etcd grants and renews leases even without these rights. The first
// process begins the namespace's history.
func (s *session) register() error {
	st, key := s.store, s.store.keys.history()
	known, isKnown := st.history.Load(), clientv3.Compare(clientv3.CreateRevision(key), ">", 0)
	if known != nil {
		isKnown = clientv3.Compare(clientv3.Value(key), "=", *known)
	} else {
		isMissing := clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
		_, err := st.cluster.commit(s.Ctx, transaction{[]clientv3.Cmp{isMissing}, []clientv3.Op{clientv3.OpPut(key, rand.Text())}})
		if err != nil {
			return err
		}
	}
	answer, err := st.cluster.commit(s.Ctx, transaction{
		when: []clientv3.Cmp{isKnown},
		then: []clientv3.Op{clientv3.OpGet(key), s.put(st.keys.session(s.id), st.Owner.Name)},
	})
	switch {
	case err != nil:
		return err
	case !answer.Succeeded:
		return fmt.Errorf("%w: in cluster %x, key %s is missing or another one; this process has used it elsewhere, where others may be inside; "+
			"put the endpoints or the data right, or, if nobody uses the old ones, restart all Caddys",
			lease.ErrElsewhere, answer.Header.ClusterId, key)
	}
	st.history.Store(new(string(answer.Responses[0].GetResponseRange().Kvs[0].Value)))
	return nil
}

// put puts a key that belongs to the lease.
func (s *session) put(key, value string) clientv3.Op {
	return clientv3.OpPut(key, value, clientv3.WithLease(s.id))
}

// renew renews the lease. A process that may no longer write lets its lease expire: it
// could not delete its tickets, and all other processes would wait for them. It renews again once
// etcd lets the user write.
func (s *session) renew() error {
	return s.Renew(func() (time.Duration, error) {
		if s.denied.Load() {
			if err := s.register(); err != nil {
				return 0, err
			}
			s.denied.Store(false)
		}
		ctx, cancel := context.WithTimeout(s.Ctx, s.ttl/4)
		defer cancel()
		return s.store.cluster.renew(ctx, s.id)
	})
}

// persist sends a transaction until etcd has carried it out or refused it for good, or the
// session is over.
func (s *session) persist(txn transaction) (answer *clientv3.TxnResponse, err error) {
	for {
		answer, err = s.commit(s.Ctx, txn)
		if err == nil || !transient(err) && !denied(err) || s.Ctx.Err() != nil {
			return answer, err
		}
		lease.Sleep(s.Ctx, lease.RetryPause)
	}
}

// commit sends a transaction once.
func (s *session) commit(ctx context.Context, txn transaction) (*clientv3.TxnResponse, error) {
	least := s.shown.Load()
	answer, err := s.store.cluster.commit(ctx, txn)
	if denied(err) {
		s.denied.Store(true)
	}
	if errors.Is(err, rpctypes.ErrTooManyOps) { // the tickets go with the lease
		s.End(fmt.Errorf("etcd needs --max-txn-ops %d, which is its default: %w", maxOps, err))
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
	s.End(err)
	return err
}

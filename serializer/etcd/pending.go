package etcd

import (
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

const (
	maxRequests  = 4           // requests at a time
	maxOps       = 128         // in a transaction: etcd's --max-txn-ops, unless somebody has changed it
	refusedPause = time.Second // before repeating a request that etcd has refused
)

// carryOut carries out what is pending, when there is something. Keys that cannot be deleted
// before the session ends disappear with the lease.
func (s *session) carryOut() {
	for {
		select {
		case <-s.Wanted:
			lease.Yield() // the next ticket may take the deletion along
			s.carryOutOnce()
		case <-s.Ctx.Done():
			return
		}
	}
}

func (s *session) carryOutOnce() {
	pending := s.take(0)
	operations := s.operations(pending)
	if len(operations) == 0 {
		return
	}
	_, err := s.persist(transaction{then: operations})
	if err != nil && s.Ctx.Err() == nil {
		s.store.Complain(fmt.Errorf("deleting or marking %d tickets: %w", len(operations), err))
		s.Again(pending)
		lease.Sleep(s.Ctx, refusedPause)
	}
}

// take takes what is pending and fits into a transaction, beside some operations.
func (s *session) take(beside int) lease.Pending {
	s.store.Mu.Lock()
	defer s.store.Mu.Unlock()
	return s.TakeLocked(maxOps - beside)
}

// operations are what a transaction does for what is pending. The key of a ticket that is inside
// says so, unless it was deleted.
func (s *session) operations(pending lease.Pending) (ops []clientv3.Op) {
	for _, key := range pending.Leaving {
		ops = append(ops, clientv3.OpDelete(key))
	}
	for _, t := range pending.Inside {
		ops = append(ops, clientv3.OpTxn(exists(t), []clientv3.Op{s.put(t.Key, lease.Record(t, lease.IsInside))}, nil))
	}
	return ops
}

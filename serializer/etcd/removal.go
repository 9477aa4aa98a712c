package etcd

import (
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

const (
	maxRemovers  = 4           // requests at a time
	refusedPause = time.Second // before repeating a request that etcd has refused
)

// remove deletes keys when there are any. Keys that cannot be deleted before the session ends
// disappear with the lease.
func (s *session) remove() {
	for {
		select {
		case <-s.Wanted:
			lease.Yield() // the next ticket may take the deletion along
			s.removeAll()
		case <-s.Ctx.Done():
			return
		}
	}
}

// removeAll deletes keys until none is left.
func (s *session) removeAll() {
	for keys := s.nextRemovals(); keys != nil; keys = s.nextRemovals() {
		_, err := s.persist(transaction{then: deletions(keys)})
		switch {
		case err == nil || s.Ctx.Err() != nil:
			continue
		case !errors.Is(err, rpctypes.ErrTooManyOps) || !s.store.takeFewer():
			s.store.Complain(fmt.Errorf("deleting %d keys such as %s: %w", len(keys), keys[0], err))
			lease.Sleep(s.Ctx, refusedPause)
		}
		s.LeaveAgain(keys)
	}
}

func (s *session) nextRemovals() []string {
	s.store.Mu.Lock()
	defer s.store.Mu.Unlock()
	if s.Over {
		return nil
	}
	return s.TakeLeavingLocked(int(s.store.operations.Load()))
}

func deletions(keys []string) (ops []clientv3.Op) {
	for _, key := range keys {
		ops = append(ops, clientv3.OpDelete(key))
	}
	return ops
}

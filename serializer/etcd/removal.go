package etcd

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

const (
	maxRemovers  = 4           // requests at a time
	refusedPause = time.Second // before repeating a request that etcd has refused
)

// Remove implements [serializer.Store].
func (st *Store) Remove(t *serializer.Ticket) {
	st.mu.Lock()
	defer st.mu.Unlock()
	s := st.sessions[t.Ref]
	s.local--
	if s.over {
		s.forgetIfLeftLocked()
		return
	}
	if s.tickets[t.Key] == t { // otherwise, somebody has deleted the key
		delete(s.tickets, t.Key)
		s.removeLocked(t.Key)
	}
}

// removeLocked requests the deletion of keys. Keys are never used again, so it may be
// carried out at any time.
func (s *session) removeLocked(keys ...string) {
	s.removals = append(s.removals, keys...)
	if s.removers < maxRemovers && len(s.removals) > 0 {
		s.removers++
		go s.removeAll()
	}
}

func (s *session) removeAgain(keys []string) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.removeLocked(keys...)
}

// removeAll deletes keys until none is left. Keys that cannot be deleted before the
// session ends disappear with the lease.
func (s *session) removeAll() {
	// Let a caller that has just left queue again: then its next ticket takes the deletion
	// along. Otherwise, its request would be the second one of two.
	for n, begun := 0, time.Now(); n < 8 || time.Since(begun) < 30*time.Microsecond; n++ {
		runtime.Gosched()
	}
	for keys := s.nextRemovals(); keys != nil; keys = s.nextRemovals() {
		_, err := s.persist(transaction{then: deletions(keys)})
		switch {
		case err == nil || s.ctx.Err() != nil:
			continue
		case !errors.Is(err, rpctypes.ErrTooManyOps) || !s.store.takeFewer():
			s.store.complain(fmt.Errorf("deleting %d keys such as %s: %w", len(keys), keys[0], err))
			lease.Sleep(s.ctx, refusedPause)
		}
		s.removeAgain(keys)
	}
}

func (s *session) nextRemovals() []string {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	if len(s.removals) == 0 || s.over {
		s.removers--
		return nil
	}
	return s.takeRemovalsLocked(int(s.store.operations.Load()))
}

// takeRemovalsLocked takes pending deletions, at most n.
func (s *session) takeRemovalsLocked(n int) []string {
	n = min(n, len(s.removals))
	keys := s.removals[:n:n]
	s.removals = s.removals[n:]
	return keys
}

func deletions(keys []string) (ops []clientv3.Op) {
	for _, key := range keys {
		ops = append(ops, clientv3.OpDelete(key))
	}
	return ops
}

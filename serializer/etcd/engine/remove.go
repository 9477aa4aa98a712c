package engine

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	maxDeleters = 4   // requests at a time
	deleteBatch = 100 // keys in a request; etcd takes 128 operations
)

// remove has a key deleted, soon. The turn is handed on before: where the next
// one is ours, it knows already; where it is not, the deletion is what tells
// it. A ticket's key is never used again, so deleting it twice does no harm.
// The caller holds the engine's lock.
func (s *session) remove(key string) {
	if _, twice := s.leaving[key]; twice || s.over {
		return
	}
	s.leaving[key] = struct{}{}
	s.deletions = append(s.deletions, key)
	if s.deleters < maxDeleters {
		s.deleters++
		go s.deleteKeys()
	}
}

// deleteKeys deletes what there is to delete, until there is no more. What it
// cannot delete before the session is over goes with the lease.
func (s *session) deleteKeys() {
	for {
		batch := s.nextDeletions()
		if batch == nil {
			return
		}
		ops := make([]clientv3.Op, len(batch))
		for i, key := range batch {
			ops[i] = clientv3.OpDelete(key)
		}
		for tries := 0; s.ctx.Err() == nil; tries++ {
			if s.try(tries, ops) == nil {
				break
			}
			sleep(s.ctx, retryPause)
		}
		s.deleted(batch)
	}
}

// try sends one request.
func (s *session) try(tries int, ops []clientv3.Op) error {
	ctx, cancel := context.WithTimeout(s.ctx, attemptTime(tries))
	defer cancel()
	_, err := s.client.Txn(ctx).Then(ops...).Commit()
	return err
}

func (s *session) nextDeletions() []string {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	n := min(len(s.deletions), deleteBatch)
	if n == 0 || s.over {
		s.deleters--
		return nil
	}
	batch := s.deletions[:n:n]
	s.deletions = s.deletions[n:]
	return batch
}

func (s *session) deleted(keys []string) {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	for _, key := range keys {
		delete(s.leaving, key)
	}
}

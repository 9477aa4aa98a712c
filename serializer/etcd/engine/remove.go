package engine

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	maxDeleters = 4   // requests at a time
	deleteBatch = 100 // keys in a request; etcd takes 128 operations
)

// deletion is a key of ours to be deleted.
type deletion struct {
	line *line // nil for keys that are no tickets
	key  string
	rev  int64  // of the ticket; 0 deletes whatever stands there
	slot uint64 // free again after that; 0 is none
}

// remove has a key deleted, soon. The turn is handed on before: where the next
// one is ours, it knows already; where it is not, the deletion is what tells
// it. The caller holds the engine's lock.
func (s *session) remove(d deletion) {
	if rev, twice := s.leaving[d.key]; s.over || twice && rev >= d.rev {
		return
	}
	s.leaving[d.key] = d.rev
	if d.line != nil {
		d.line.leaving++
	}
	s.deletions = append(s.deletions, d)
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
		for tries := 0; s.ctx.Err() == nil; tries++ {
			rev, err := s.deleteOnce(tries, batch)
			if err == nil {
				s.settleDeletions(batch, rev)
				break
			}
			sleep(s.ctx, retryPause)
		}
	}
}

// deleteOnce sends one request. It deletes the tickets that are meant, and none
// that took their keys after them: the request may be carried out twice, and
// the second time late.
func (s *session) deleteOnce(tries int, batch []deletion) (rev int64, err error) {
	ctx, cancel := context.WithTimeout(s.ctx, attemptTime(tries))
	defer cancel()
	txn := s.client.Txn(ctx)
	if d := batch[0]; len(batch) == 1 {
		txn = txn.If(d.same()...).Then(clientv3.OpDelete(d.key))
	} else {
		ops := make([]clientv3.Op, len(batch))
		for i, d := range batch {
			ops[i] = clientv3.OpTxn(d.same(), []clientv3.Op{clientv3.OpDelete(d.key)}, nil)
		}
		txn = txn.Then(ops...)
	}
	answer, err := txn.Commit()
	if err != nil {
		return 0, err
	}
	return answer.Header.Revision, nil
}

// same is the condition that the key is still that of the ticket.
func (d deletion) same() []clientv3.Cmp {
	if d.rev == 0 {
		return nil
	}
	return []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(d.key), "=", d.rev)}
}

func (s *session) nextDeletions() []deletion {
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

// settleDeletions notes that keys are gone, as of a revision.
func (s *session) settleDeletions(batch []deletion, rev int64) {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	s.deleted = max(s.deleted, rev)
	for _, d := range batch {
		delete(s.leaving, d.key)
		if d.line == nil {
			continue
		}
		d.line.leaving--
		if d.slot != 0 {
			d.line.free = append(d.line.free, d.slot)
		}
	}
}

package etcd

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

const (
	maxDeleters = 4  // requests at a time
	deleteBatch = 60 // keys in a request; etcd takes 128 operations, and each key may need two
)

// deletion is a key of ours to be deleted.
type deletion struct {
	line *line // nil for keys that are no tickets
	key  string
	end  string // where given, all keys from key up to here are meant
	rev  int64  // of the ticket; 0 deletes whatever stands there
	left bool   // the ticket was inside, alone
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
			s.noteDenial(err)
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
	txn := s.deletion(batch[0])
	if len(batch) > 1 {
		txn = new(pb.TxnRequest)
		for _, d := range batch {
			txn.Success = append(txn.Success, within(s.deletion(d)))
		}
	}
	answer, err := s.commit(tries, txn)
	if err != nil {
		return 0, err
	}
	return answer.Header.Revision, nil
}

// deletion deletes one key, and leaves the mark for those who wait for that.
func (s *session) deletion(d deletion) *pb.TxnRequest {
	txn := &pb.TxnRequest{Success: []*pb.RequestOp{erase(d.key, d.end)}}
	if d.rev != 0 {
		txn.Compare = []*pb.Compare{createdAt(d.key, d.rev)}
	}
	if d.rev != 0 && d.line != nil {
		txn.Success = append(txn.Success, put(s.engine.keys.mark(d.key), mark{d.rev, d.left}.String(), s.id))
	}
	return txn
}

// commit carries out a transaction that may be carried out twice.
func (s *session) commit(tries int, txn *pb.TxnRequest) (*pb.TxnResponse, error) {
	ctx, cancel := context.WithTimeout(s.ctx, attemptTime(tries))
	defer cancel()
	return ask(ctx, s.engine.cluster, func(ctx context.Context, m *member) (*pb.TxnResponse, error) { return m.commit(ctx, txn) })
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
	if len(batch) > 0 && batch[0].line != nil {
		s.engine.measure(s.answered, rev)
	}
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

// measure notes how late the watch is: once for the answer to a deletion and
// once for the watch that tells of it, whichever comes first. The caller holds
// the lock.
func (e *Engine) measure(answered map[int64]time.Duration, rev int64) {
	if answered == nil {
		return
	}
	now := e.clock()
	if before, ok := answered[rev]; ok {
		e.watchLag = now - before
		delete(answered, rev)
		return
	}
	if len(answered) > maxMeasured {
		clear(answered) // of watches that were lost
	}
	answered[rev] = now
}

const maxMeasured = 1000

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

// deletion is a key of ours that is to be deleted.
type deletion struct {
	queue *ticketQueue // nil for a key that is no ticket
	key   string
	end   string // if set, all keys from key up to here are meant
	rev   int64  // of the ticket; 0 deletes the key whatever it holds
	left  bool   // the ticket was inside, alone
	slot  uint64 // free afterwards; 0 is none
}

// deleteLocked has a key deleted soon. The turn passes on before: if the next
// waiter is ours, it is inside already; if it is remote, the deletion is the
// message that lets it in.
func (s *session) deleteLocked(d deletion) {
	if rev, twice := s.leaving[d.key]; s.over || twice && rev >= d.rev {
		return
	}
	s.leaving[d.key] = d.rev
	if d.queue != nil {
		d.queue.leaving++
	}
	s.deletions = append(s.deletions, d)
	if s.deleters < maxDeleters {
		s.deleters++
		go s.deleteKeys()
	}
}

// deleteKeys sends deletions until none is left. Keys that it cannot delete before
// the session is over go with the lease.
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

// deleteOnce sends one request. It deletes only the tickets that are meant, not
// later ones with the same keys: etcd may carry the request out twice, the second
// time late.
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

// deletion deletes one key, and puts the mark that a waiter watches.
func (s *session) deletion(d deletion) *pb.TxnRequest {
	txn := &pb.TxnRequest{Success: []*pb.RequestOp{erase(d.key, d.end)}}
	if d.rev != 0 {
		txn.Compare = []*pb.Compare{createdAt(d.key, d.rev)}
	}
	if d.rev != 0 && d.queue != nil {
		txn.Success = append(txn.Success, put(s.engine.keys.mark(d.key), mark{d.rev, d.left}.String(), s.id))
	}
	return txn
}

// commit sends a transaction. etcd may carry it out twice.
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

// settleDeletions notes that keys were deleted, by the given revision.
func (s *session) settleDeletions(batch []deletion, rev int64) {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	s.deleted = max(s.deleted, rev)
	if len(batch) > 0 && batch[0].queue != nil {
		s.engine.measureLocked(s.answered, rev)
	}
	for _, d := range batch {
		delete(s.leaving, d.key)
		if d.queue == nil {
			continue
		}
		d.queue.leaving--
		if d.slot != 0 {
			d.queue.free = append(d.queue.free, d.slot)
		}
	}
}

// measureLocked measures how late the watch is. It is called for the answer to a
// deletion and for the watch that reports it, in whichever order they come.
func (e *Engine) measureLocked(answered map[int64]time.Duration, rev int64) {
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

package etcd

import (
	"errors"
	"fmt"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

const (
	maxDeleters = 4  // requests at a time
	deleteBatch = 60 // keys in a request; etcd takes 128 operations, and each key may need two

	refusedPause = time.Second // before repeating a deletion that etcd has refused
)

// deletion is a local key that must be deleted.
type deletion struct {
	queue *ticketQueue // nil if the key is not a ticket
	key   string
	end   string // if set, the deletion is of all keys from key up to here
	rev   int64  // of the ticket; 0 deletes the key whatever it holds
	left  bool   // the ticket was inside alone
	slot  uint64 // free afterwards; 0 for none
}

func (d deletion) queueName() string {
	if d.queue == nil {
		return ""
	}
	return d.queue.name
}

// deleteLocked requests the deletion of a key. The turn passes on before that: a local
// successor is already inside; for a remote one, the deletion is the message that admits
// it.
func (s *session) deleteLocked(d deletion) {
	if rev, twice := s.leaving[d.key]; s.over || twice && rev >= d.rev {
		return
	}
	s.leaving[d.key] = d.rev
	if d.queue != nil {
		d.queue.leaving++
	}
	s.sendLocked(d)
}

// sendLocked queues a deletion behind the pending ones.
func (s *session) sendLocked(d deletion) {
	if s.over {
		return
	}
	s.deletions = append(s.deletions, d)
	if s.deleters < maxDeleters {
		s.deleters++
		go s.deleteKeys()
	}
}

// carriedLocked takes pending deletions to go along with a request for a ticket, which is
// about to be sent. In a busy queue, callers often leave and return at once, and etcd
// commits in rounds. If the ticket were sent first, the deletion, and with it the next
// holder, would wait for two rounds. If the deletion were sent first, the next holder's
// deletion would.
func (s *session) carriedLocked() []deletion {
	if len(s.deletions) == 0 || s.deletions[0].end != "" {
		return nil
	}
	return s.splitDeletionsLocked()
}

// sendAgain repeats deletions that went along with a failed request.
func (s *session) sendAgain(batch []deletion) {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	for _, d := range batch {
		s.sendLocked(d)
	}
}

// deleteKeys sends deletions until none is left. Keys that cannot be deleted before the
// session ends disappear with the lease.
func (s *session) deleteKeys() {
	for {
		batch := s.nextDeletions()
		if batch == nil {
			return
		}
		s.deleteBatch(batch, withMarks)
	}
}

// deleteBatch repeats one request until etcd has carried it out or refused it. If etcd
// refuses a batch, its deletions are sent one by one, so that none delays the others.
func (s *session) deleteBatch(batch []deletion, marks marking) {
	for tries := 0; s.ctx.Err() == nil; tries++ {
		rev, err := s.deleteOnce(tries, batch, marks)
		s.noteDenial(err)
		switch {
		case err == nil:
			s.settleDeletions(batch, rev)
			return
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			s.lose(err)
			return
		case transient(err) || denied(err):
			sleep(s.ctx, retryPause)
			continue
		}
		s.complain(batch[0].queueName(), fmt.Errorf("deleting %d keys such as %s: %w", len(batch), batch[0].key, err))
		switch {
		case errors.Is(err, rpctypes.ErrNoSpace) && marks == withMarks:
			marks = withoutMarks
		case len(batch) > 1:
			for i := range batch {
				s.deleteBatch(batch[i:i+1], marks)
			}
			return
		default:
			s.deleteLater(batch[0])
			return
		}
	}
}

// deleteLater repeats a deletion that etcd has refused.
func (s *session) deleteLater(d deletion) {
	time.AfterFunc(refusedPause, func() {
		s.engine.mu.Lock()
		defer s.engine.mu.Unlock()
		s.sendLocked(d)
	})
}

// deleteOnce sends one request. It does not delete later tickets with the same keys: etcd
// may carry out the request twice, the second time late.
func (s *session) deleteOnce(tries int, batch []deletion, marks marking) (rev int64, err error) {
	txn := s.deletion(batch[0], marks)
	if len(batch) > 1 {
		txn = new(pb.TxnRequest)
		for _, d := range batch {
			txn.Success = append(txn.Success, within(s.deletion(d, marks)))
		}
	}
	answer, err := s.commit(tries, txn)
	if err != nil {
		return 0, err
	}
	return answer.rev(), nil
}

// marking is whether deletions of tickets also put marks.
type marking bool

const (
	withMarks marking = true

	// withoutMarks deletes the mark, too, because a full etcd refuses any put. If there
	// was a mark, a watch reports that; otherwise, the next waiter notices at its check.
	withoutMarks marking = false
)

// deletion deletes one key, and puts the mark that a waiter watches.
func (s *session) deletion(d deletion, marks marking) *pb.TxnRequest {
	txn := &pb.TxnRequest{Success: []*pb.RequestOp{erase(d.key, d.end)}}
	if d.rev == 0 {
		return txn
	}
	txn.Compare = []*pb.Compare{createdAt(d.key, d.rev)}
	switch key := s.engine.keys.mark(d.key); {
	case d.queue == nil:
	case marks == withMarks:
		txn.Success = append(txn.Success, put(key, mark{d.rev, d.left}.String(), s.id))
	default:
		txn.Success = append(txn.Success, erase(key, ""))
	}
	return txn
}

func (s *session) nextDeletions() []deletion {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	if len(s.deletions) == 0 || s.over {
		s.deleters--
		return nil
	}
	return s.splitDeletionsLocked()
}

// splitDeletionsLocked takes the next deletions that can share a request.
func (s *session) splitDeletionsLocked() []deletion {
	n := batchSize(s.deletions)
	batch := s.deletions[:n:n]
	s.deletions = s.deletions[n:]
	return batch
}

// batchSize is how many of the next deletions can share a request. etcd refuses a request
// that puts a key twice, or puts a key in a range that it deletes.
func batchSize(deletions []deletion) int {
	for n, d := range deletions[:min(len(deletions), deleteBatch)] {
		conflicts := func(other deletion) bool { return other.key == d.key || (other.end == "") != (d.end == "") }
		if slices.ContainsFunc(deletions[:n], conflicts) {
			return n
		}
	}
	return min(len(deletions), deleteBatch)
}

// settleDeletions notes that keys were deleted at the latest by a revision.
func (s *session) settleDeletions(batch []deletion, rev int64) {
	if len(batch) == 0 {
		return
	}
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	s.deleted = max(s.deleted, rev)
	if batch[0].queue != nil {
		s.engine.measureLocked(s.answered, rev)
	}
	for _, d := range batch {
		if s.leaving[d.key] == d.rev { // otherwise, the deletion of a later ticket is pending
			delete(s.leaving, d.key)
		}
		if d.queue == nil {
			continue
		}
		d.queue.leaving--
		if d.slot != 0 {
			d.queue.free = append(d.queue.free, d.slot)
		}
	}
}

// measureLocked measures the delay of the watch. It is called for the answer to a
// deletion and for the watch event that reports it, in either order.
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
		clear(answered) // the watches that should have reported these were lost
	}
	answered[rev] = now
}

const maxMeasured = 1000

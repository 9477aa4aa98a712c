package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

// Append implements [serializer.Store].
func (st *Store) Append(ctx context.Context, tickets []*serializer.Ticket) error {
	for len(tickets) > 0 {
		n := min(len(tickets), maxBatch, int(st.operations.Load()))
		err := lease.Do(ctx, st.Store, "taking a ticket from", func(s *session) error { return s.append(ctx, tickets[:n]) })
		switch {
		case errors.Is(err, rpctypes.ErrTooManyOps) && st.takeFewer():
		case err != nil:
			return err
		default:
			tickets = tickets[n:]
		}
	}
	return nil
}

// append puts the keys of tickets, all at one revision. It returns when they are reported.
//
// The keys are put only if they do not exist. So if the answer is lost, the request can be
// repeated: the tickets are the same, and so are their places. The lost request may still
// be carried out, even after the tickets were used and deleted, or after append has given
// up. Then the watch shows keys that nobody wants, and they are deleted.
func (s *session) append(ctx context.Context, tickets []*serializer.Ticket) error {
	txn, removals := s.newBatch(tickets)
	defer s.Abandon()
	reported := func() bool { return len(s.Sent) == 0 }
	for {
		answered, err := s.send(txn, removals)
		switch {
		case err == nil:
			err = s.await(ctx, func() bool { return reported() || s.applied >= answered })
			if err == nil && s.Abandon() > 0 { // the watch was lost for a moment
				err = fmt.Errorf("somebody has deleted its key: %w", serializer.ErrEvicted)
			}
			return err
		case !transient(err) && !denied(err):
			return err
		}
		pause, cancel := context.WithTimeout(ctx, lease.RetryPause)
		err = s.await(pause, reported)
		cancel()
		if err == nil || ctx.Err() != nil || s.Ctx.Err() != nil {
			return err
		}
		removals = nil
	}
}

// newBatch prepares tickets and the request for them, and takes pending deletions to go
// along. In a busy queue, callers often leave and return at once, and etcd commits in
// rounds: of two requests, one would wait for the other, and the next holder with it.
func (s *session) newBatch(tickets []*serializer.Ticket) (txn transaction, removals []string) {
	st := s.store
	s.batches++
	key := func(i int) string {
		return st.keys.ticket(ticketKey{tickets[i].Queue, s.id, s.batches<<batchBits | uint64(i)})
	}
	for i, record := range s.Send(tickets, key) {
		txn.then = append(txn.then, s.put(key(i), record))
	}
	txn.when = []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key(0)), "=", 0)}
	st.Mu.Lock()
	defer st.Mu.Unlock()
	return txn, s.TakeLeavingLocked(int(st.operations.Load()) - len(tickets))
}

// send sends the request for a batch once, together with deletions. If these may not have
// been carried out, they are repeated by themselves.
func (s *session) send(txn transaction, removals []string) (answered int64, err error) {
	txn.then = append(txn.then[:len(txn.then):len(txn.then)], deletions(removals)...)
	answer, err := s.commit(s.Ctx, txn)
	if err != nil || !answer.Succeeded {
		s.LeaveAgain(removals)
	}
	if err != nil {
		return 0, err
	}
	return answer.Header.Revision, nil
}

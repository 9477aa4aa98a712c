package etcd

import (
	"context"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

// Append implements [lease.Protocol]. It puts the keys of a batch at one revision, and returns when
// they are reported, or deleted while the watch was lost.
//
// The keys are put only if they do not exist. So if the answer is lost, the request can be
// repeated: the tickets are the same, and so are their places. The lost request may still
// be carried out, even after the tickets were used and deleted, or after Append has given
// up. Then the watch shows keys that nobody wants, and they are deleted.
func (s *session) Append(ctx context.Context, tickets []*serializer.Ticket) error {
	txn, pending := s.newBatch(tickets)
	reported := func() bool { return len(s.Sent) == 0 }
	for {
		answered, err := s.send(txn, pending)
		switch {
		case err == nil:
			return s.await(ctx, func() bool { return reported() || s.applied >= answered })
		case !transient(err) && !denied(err):
			return err
		}
		pause, cancel := context.WithTimeout(ctx, lease.RetryPause)
		err = s.await(pause, reported)
		cancel()
		if err == nil || ctx.Err() != nil || s.Ctx.Err() != nil {
			return err
		}
		pending = lease.Pending{}
	}
}

// newBatch prepares tickets and the request for them, and takes what is pending along. In a busy
// queue, callers often leave and return at once, and etcd commits in rounds: of two requests, one
// would wait for the other, and the next holder with it.
func (s *session) newBatch(tickets []*serializer.Ticket) (txn transaction, pending lease.Pending) {
	s.batches++
	key := func(i int) string {
		return s.store.keys.ticket(ticketKey{tickets[i].Queue, s.id, s.batches<<batchBits | uint64(i)})
	}
	for i, record := range s.Send(tickets, key) {
		txn.then = append(txn.then, s.put(key(i), record))
	}
	txn.when = []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key(0)), "=", 0)}
	return txn, s.take(len(tickets))
}

// send sends the request for a batch once, together with what is pending. If that may not have
// been carried out, it is repeated by itself.
func (s *session) send(txn transaction, pending lease.Pending) (answered int64, err error) {
	txn.then = append(txn.then[:len(txn.then):len(txn.then)], s.operations(pending)...)
	answer, err := s.commit(s.Ctx, txn)
	if err != nil || !answer.Succeeded {
		s.Again(pending)
	}
	if err != nil {
		return 0, err
	}
	return answer.Header.Revision, nil
}

// Evict implements [lease.Protocol]. The ticket's key asks the owner. One without an owner is
// deleted.
func (s *session) Evict(ctx context.Context, t *serializer.Ticket) error {
	change := clientv3.OpDelete(t.Key)
	if t.Owner.Alive {
		change = clientv3.OpPut(t.Key, lease.Record(t, atomic.LoadUint64(&t.Ref)|lease.IsAsked), clientv3.WithIgnoreLease())
	}
	answer, err := s.commit(ctx, transaction{when: exists(t), then: []clientv3.Op{change}})
	if err != nil || !answer.Succeeded {
		return err
	}
	return s.await(ctx, func() bool { return s.applied >= answer.Header.Revision })
}

// exists holds if a ticket is not out.
func exists(t *serializer.Ticket) []clientv3.Cmp {
	return []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(t.Key), "=", revisionOf(t.Number))}
}

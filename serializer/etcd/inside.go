package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

// MarkInside implements [lease.Protocol]. The ticket's key says it.
func (s *session) MarkInside(t *serializer.Ticket) {
	_, _ = s.persist(ifExists(t, s.put(t.Key, lease.Record(t, true))))
}

// Evict implements [serializer.Store]. It puts a key that asks the owner, which alone
// knows whether the ticket is inside. The owner deletes it when it has obeyed. The key
// belongs to the owner's lease, and so ends with the ticket. The key of a ticket without
// an owner is deleted.
func (st *Store) Evict(ctx context.Context, t *serializer.Ticket) error {
	k, _ := st.keys.parseTicket(t.Key)
	key, change := st.keys.eviction(k.lease, t.Number), clientv3.OpDelete(t.Key)
	if t.Owner.Alive {
		change = clientv3.OpPut(key, t.Key, clientv3.WithLease(k.lease))
	}
	found := false
	err := lease.Do(ctx, st.Store, "asking the owner by", func(*session) error {
		answer, err := st.cluster.commit(ctx, ifExists(t, change))
		found = err == nil && answer.Succeeded
		for open := found; err == nil && open; {
			answer, err = st.cluster.commit(ctx, transaction{then: []clientv3.Op{clientv3.OpGet(key)}})
			if open = err == nil && answer.Responses[0].GetResponseRange().Count > 0; open {
				lease.Sleep(ctx, lease.RetryPause)
			}
		}
		return err
	})
	if err == nil && !found {
		return serializer.ErrNoTicket
	}
	return err
}

// ifExists makes a change if a ticket is not out.
func ifExists(t *serializer.Ticket, change clientv3.Op) transaction {
	return transaction{
		when: []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(t.Key), "=", revisionOf(t.Number))},
		then: []clientv3.Op{change},
	}
}

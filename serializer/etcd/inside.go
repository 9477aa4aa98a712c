package etcd

import (
	"context"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

// isInside is the Ref of a remote ticket whose owner says that it is inside.
const isInside = 1

// Inside implements [serializer.Store].
func (st *Store) Inside(t *serializer.Ticket) bool { return atomic.LoadUint64(&t.Ref) == isInside }

// SetInside implements [serializer.Store]. In a paused queue, the ticket's key says it.
func (st *Store) SetInside(t *serializer.Ticket, paused bool) {
	if paused {
		go func() {
			if s := st.sessionOf(t); s != nil {
				_, _ = s.persist(ifExists(t, s.put(t.Key, recordOf(t, true)))) // it is for lists only
			}
		}()
	}
}

// sessionOf returns the session that a ticket of this process belongs to.
func (st *Store) sessionOf(t *serializer.Ticket) *session {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.sessions[t.Ref]
}

// Evict implements [serializer.Store]. It puts a key that asks the owner, which alone
// knows whether the ticket is inside. The owner deletes it when it has obeyed. The key
// belongs to the owner's lease, and so ends with the ticket. The key of a ticket without
// an owner is deleted.
func (st *Store) Evict(ctx context.Context, t *serializer.Ticket) error {
	k, _ := st.keys.parseTicket(t.Key)
	key, change := st.keys.eviction(k.lease, t.Number), clientv3.OpDelete(t.Key)
	if t.Owner.Alive {
		change = clientv3.OpPut(key, t.Queue, clientv3.WithLease(k.lease))
	}
	answer, err := st.cluster.commit(ctx, ifExists(t, change))
	if err == nil && !answer.Succeeded {
		return serializer.ErrNoTicket
	}
	for err == nil {
		answer, err = st.cluster.commit(ctx, transaction{then: []clientv3.Op{clientv3.OpGet(key)}})
		if err == nil && answer.Responses[0].GetResponseRange().Count == 0 {
			return nil
		}
		lease.Sleep(ctx, lease.RetryPause)
	}
	return st.storageError("asking the owner", err)
}

// ifExists makes a change if a ticket is not out.
func ifExists(t *serializer.Ticket, change clientv3.Op) transaction {
	return transaction{
		when: []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(t.Key), "=", revisionOf(t.Number))},
		then: []clientv3.Op{change},
	}
}

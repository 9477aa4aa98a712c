package etcd

import (
	"context"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// isInside is the Ref of a remote ticket whose owner says that it is inside.
const isInside = 1

// Inside implements [serializer.Store].
func (st *Store) Inside(t *serializer.Ticket) bool { return atomic.LoadUint64(&t.Ref) == isInside }

// SetInside implements [serializer.Store]. In a paused queue, the ticket's key says it.
func (st *Store) SetInside(t *serializer.Ticket, paused bool) {
	if paused {
		go st.markInside(t)
	}
}

func (st *Store) markInside(t *serializer.Ticket) {
	if s := st.sessionOf(t); s != nil {
		_, _ = s.persist(ifExists(t, s.put(t.Key, recordOf(t, true)))) // it is for lists only
	}
}

// sessionOf returns the session that a ticket of this process belongs to.
func (st *Store) sessionOf(t *serializer.Ticket) *session {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.sessions[t.Ref]
}

// Evict implements [serializer.Store]. It puts a key that asks the owner, which alone
// knows whether the ticket is inside. The key belongs to this process's lease, in case the
// owner never reads it. The key of a ticket without an owner is deleted.
func (st *Store) Evict(ctx context.Context, t *serializer.Ticket) error {
	s, err := st.current(ctx)
	if err != nil {
		return err
	}
	evict := clientv3.OpDelete(t.Key)
	if k, ok := st.keys.parseTicket(t.Key); ok && t.Owner.Alive {
		evict = s.put(st.keys.eviction(k.lease, t.Number), t.Queue)
	}
	answer, err := s.commit(ctx, ifExists(t, evict))
	switch {
	case err != nil:
		return st.storageError("asking the owner", err)
	case !answer.Succeeded:
		return serializer.ErrNoTicket
	}
	return nil
}

// ifExists makes a change if a ticket is not out.
func ifExists(t *serializer.Ticket, change clientv3.Op) transaction {
	return transaction{
		when: []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(t.Key), "=", revisionOf(t.Number))},
		then: []clientv3.Op{change},
	}
}

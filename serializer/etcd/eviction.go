package etcd

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Evict implements [serializer.Engine]. For a remote ticket, it puts a key that asks
// the owner to evict it. Only the owner knows whether the ticket is inside, and only the
// owner deletes it. Evict returns once that key exists. A ticket without a lease no
// longer has an owner, and is deleted at once.
func (e *Engine) Evict(ctx context.Context, queue string, token uint64) error {
	s, err := e.current(ctx)
	if err == nil && !s.evict(queue, token) {
		err = s.askEviction(ctx, queue, int64(token))
	}
	if err != nil {
		return fmt.Errorf("evicting ticket %d from queue %q: %w", token, queue, err)
	}
	return nil
}

// evict evicts a local ticket. It reports whether there is one.
func (s *session) evict(queue string, token uint64) bool {
	e := s.engine
	e.mu.Lock()
	revoke := func(error) {}
	t := s.findLocked(queue, int64(token))
	switch {
	case t == nil:
	case t.granted:
		revoke = t.takeRevokeLocked()
	default:
		s.rejectLocked(t, serializer.ErrEvicted)
	}
	e.mu.Unlock()
	revoke(serializer.ErrEvicted)
	return t != nil
}

func (s *session) findLocked(queue string, rev int64) *ticket {
	q := s.queues[queue]
	if q == nil {
		return nil
	}
	for t := range q.All() {
		if t.rev == rev && t.Local() {
			return t
		}
	}
	return nil
}

// askEviction puts the key that asks the owner of a ticket to evict it. The key belongs
// to this process's lease, in case the owner never reads it.
func (s *session) askEviction(ctx context.Context, queue string, rev int64) error {
	keys := s.engine.keys
	// Not with KeysOnly: etcd 3.7 then omits the leases.
	found, err := s.engine.request(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{get(allOf(keys.queue(queue)))}})
	if err != nil {
		return s.engine.storageError("reading the queue", err)
	}
	for _, kv := range found.kvs(0) {
		_, lease, ok := keys.parseTicket(string(kv.Key))
		if !ok || kv.CreateRevision != rev {
			continue
		}
		evict := put(keys.evictions(lease)+strconv.FormatInt(rev, 10), queue, s.id)
		if kv.Lease == 0 { // an operator has written it, so no lease removes it
			evict = erase(string(kv.Key), "")
		}
		answer, err := s.engine.request(ctx, &pb.TxnRequest{
			Compare: []*pb.Compare{createdAt(string(kv.Key), rev)},
			Success: []*pb.RequestOp{evict},
		})
		if err != nil {
			return s.engine.storageError("asking the owner", err)
		}
		if answer.Succeeded {
			return nil
		}
	}
	return serializer.ErrNoTicket
}

// serveEvictions carries out the evictions that other processes ask for, until the
// session is over.
func (s *session) serveEvictions() {
	s.follow(keyRange{
		what:   "evictions",
		prefix: s.engine.keys.evictions(s.id),
		skip:   []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NODELETE},
		events: func(events []*mvccpb.Event) {
			for _, event := range events {
				s.evictAsked(event.Kv)
			}
		},
		found: func(keys []*mvccpb.KeyValue, _ int64) {
			for _, kv := range keys {
				s.evictAsked(kv)
			}
		},
	})
}

// evictUnclaimed evicts a local ticket that is not listed. Either the answer to its
// request is still on its way, or it has no caller, because a late request made it.
func (s *session) evictUnclaimed(queue string, rev int64) {
	found, err := s.read(0, true, allOf(s.engine.keys.tickets(queue, s.id)))
	if err != nil {
		s.complain(queue, fmt.Errorf("reading our tickets: %w", err))
		return
	}
	if s.evict(queue, uint64(rev)) {
		return // it is listed now
	}
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	for _, kv := range found.kvs(0) {
		key := string(kv.Key)
		if kv.CreateRevision != rev {
			continue
		}
		switch t := s.tickets[key]; {
		case t == nil:
			s.deleteLocked(deletion{key: key, rev: rev})
		case !t.joined:
			s.rejectLocked(t, serializer.ErrEvicted)
		}
	}
}

// evictAsked evicts the ticket that a key names, and deletes the key.
func (s *session) evictAsked(kv *mvccpb.KeyValue) {
	key, queue := string(kv.Key), string(kv.Value)
	token, err := strconv.ParseUint(key[strings.LastIndexByte(key, '/')+1:], 10, 64)
	if err == nil && !s.evict(queue, token) {
		go s.evictUnclaimed(queue, int64(token))
	}
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	s.deleteLocked(deletion{key: key})
}

// search finds out why tickets of waiters are missing: either the lease has ended, or
// somebody has deleted them.
func (s *session) search() {
	for s.ctx.Err() == nil {
		missing := s.nextMissing()
		if missing == nil {
			return
		}
		for s.ctx.Err() == nil && s.renew(attemptTime(1)) != nil {
			sleep(s.ctx, retryPause)
		}
		if s.ctx.Err() == nil {
			s.evicted(missing)
		}
	}
}

func (s *session) nextMissing() (missing []*ticket) {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	missing, s.missing = s.missing, nil
	s.searching = missing != nil
	return missing
}

// evicted refuses waiters whose tickets somebody has deleted.
func (s *session) evicted(waiters []*ticket) {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	for _, t := range waiters {
		s.rejectLocked(t, serializer.ErrEvicted)
	}
}

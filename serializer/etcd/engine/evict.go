package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Evict implements [serializer.Engine]. A ticket of another process is taken
// out by that process, which is asked to by a key of its own: only the owner
// knows whether the ticket is inside, and only the owner deletes it. Evict
// returns once it is asked.
func (e *Engine) Evict(ctx context.Context, queue string, token uint64) error {
	s, err := e.current(ctx)
	if err != nil {
		return evictionError(queue, token, err)
	}
	if s.evict(queue, token) {
		return nil
	}
	if err := s.askEviction(ctx, queue, int64(token)); err != nil {
		return evictionError(queue, token, err)
	}
	return nil
}

// evict takes out a ticket of ours. It reports whether there is such a one.
func (s *session) evict(queue string, token uint64) bool {
	e := s.engine
	e.mu.Lock()
	var revoke func(error)
	p := s.find(queue, int64(token))
	switch {
	case p == nil:
	case p.granted:
		revoke = p.takeRevoke()
	default:
		p.refuse(serializer.ErrEvicted)
		s.drop(p)
	}
	e.mu.Unlock()
	if revoke != nil {
		revoke(serializer.ErrEvicted)
	}
	return p != nil
}

func (s *session) find(queue string, rev int64) *place {
	l := s.lines[queue]
	if l == nil {
		return nil
	}
	for e := l.head; e != nil; e = e.next {
		if e.rev == rev {
			return e.place
		}
	}
	return nil
}

// askEviction leaves word for the owner of a ticket. The word hangs on our own
// lease, should the owner never read it.
func (s *session) askEviction(ctx context.Context, queue string, rev int64) error {
	keys := s.engine.keys
	found, err := s.client.Get(ctx, keys.queue(queue), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return s.engine.storageError("reading the queue", err)
	}
	for _, kv := range found.Kvs {
		_, lease, ok := keys.parseTicket(string(kv.Key))
		if !ok || kv.CreateRevision != rev {
			continue
		}
		word := keys.evictions(lease) + strconv.FormatInt(rev, 10)
		answer, err := s.client.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(string(kv.Key)), "=", rev)).
			Then(clientv3.OpPut(word, queue, clientv3.WithLease(s.id))).
			Commit()
		if err != nil {
			return s.engine.storageError("asking the owner", err)
		}
		if answer.Succeeded {
			return nil
		}
	}
	return serializer.ErrNoTicket
}

// heedEvictions does what other processes ask of this one, until the session
// is over.
func (s *session) heedEvictions() {
	prefix := s.engine.keys.evictions(s.id)
	for s.ctx.Err() == nil {
		if err := s.watchEvictions(prefix); err != nil && s.ctx.Err() == nil {
			s.complain("", err)
			sleep(s.ctx, retryPause)
		}
	}
}

func (s *session) watchEvictions(prefix string) error {
	var w watch
	defer w.stop()
	rev, err := w.start(s.ctx, s, prefix, clientv3.WithPrefix(), clientv3.WithFilterDelete())
	if err != nil {
		return err
	}
	before, err := s.read(rev, clientv3.OpGet(prefix, clientv3.WithPrefix()))
	if err != nil {
		return fmt.Errorf("reading evictions: %w", err)
	}
	for _, kv := range before.Responses[0].GetResponseRange().Kvs {
		s.obey(string(kv.Key), string(kv.Value))
	}
	for answer := range w.answers {
		if err := answer.Err(); err != nil {
			return fmt.Errorf("watching evictions: %w", err)
		}
		for _, event := range answer.Events {
			s.obey(string(event.Kv.Key), string(event.Kv.Value))
		}
	}
	return errWatchEnded
}

var errWatchEnded = errors.New("the watch has ended")

// obey evicts the ticket that a key names, and takes the key away.
func (s *session) obey(key, queue string) {
	token, err := strconv.ParseUint(key[strings.LastIndexByte(key, '/')+1:], 10, 64)
	if err == nil {
		s.evict(queue, token)
	}
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	s.remove(deletion{key: key})
}

package etcd

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

// follow begins a watch of the namespace, and then reads the namespace. So the watch shows
// all that happens after the read.
func (s *session) follow() (*watch, error) {
	prefix := string(s.store.keys)
	w, err := s.store.cluster.watch(s.ctx, prefix)
	if err != nil {
		return nil, err
	}
	// If the last watch was lost with its connection, etcd may have been restored from a
	// backup. The read, which a majority confirms, lets checkHistory notice that.
	found, err := s.commit(s.ctx, transaction{then: []clientv3.Op{clientv3.OpGet(prefix, clientv3.WithPrefix())}})
	if err == nil {
		err = s.checkHistory(found.Header, w.rev)
	}
	if err != nil {
		w.end(err)
		return nil, fmt.Errorf("reading the namespace: %w", err)
	}
	w.rev = found.Header.Revision
	s.report(s.changes(found.Responses[0].GetResponseRange().Kvs), w.rev, w.rev)
	s.watch.Store(w)
	return w, nil
}

// pass reports the events of a watch, and of those that take its place, until the session
// is over.
func (s *session) pass(w *watch) {
	var err error
	for s.ctx.Err() == nil {
		if w == nil {
			if w, err = s.follow(); err != nil {
				s.store.complain(err)
				lease.Sleep(s.ctx, lease.RetryPause)
			}
			if denied(err) {
				lease.Sleep(s.ctx, refusedPause) // each attempt may log in
			}
			continue
		}
		answer, err := w.next()
		if err != nil {
			w.end(err)
			s.watch.Store(nil)
			w = nil
			continue
		}
		applied, shown := int64(0), answer.Header.Revision
		if n := len(answer.Events); n > 0 {
			applied = answer.Events[n-1].Kv.ModRevision
			shown = applied
		}
		events := slices.DeleteFunc(answer.Events, func(e *clientv3.Event) bool { return e.Kv.ModRevision <= w.rev })
		s.report(events, applied, shown)
	}
}

// changes returns how the namespace differs from what is known, as events.
func (s *session) changes(found []*mvccpb.KeyValue) (events []*mvccpb.Event) {
	st := s.store
	st.mu.Lock()
	defer st.mu.Unlock()
	revisions := make(map[string]int64, len(found))
	for _, kv := range found {
		revisions[string(kv.Key)] = kv.CreateRevision
	}
	missing := func(key string) {
		events = append(events, &mvccpb.Event{Type: mvccpb.Event_DELETE, Kv: &mvccpb.KeyValue{Key: []byte(key)}})
	}
	for key, t := range s.tickets {
		if revisions[key] != revisionOf(t.Number) {
			missing(key)
		}
	}
	for name := range st.pauses {
		if key := st.keys.pause(name); revisions[key] == 0 {
			missing(key)
		}
	}
	if key := st.keys.session(s.id); revisions[key] == 0 {
		missing(key)
	}
	// Those of one revision are in the order of their keys.
	slices.SortStableFunc(found, func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.CreateRevision, b.CreateRevision) })
	for _, kv := range found {
		events = append(events, &mvccpb.Event{Type: mvccpb.Event_PUT, Kv: kv})
	}
	return events
}

// report reports events, in order, after which all up to a revision are applied. The watch
// may be further than that.
func (s *session) report(events []*mvccpb.Event, applied, shown int64) {
	var deleted []string
	for _, event := range events {
		if event.Type == mvccpb.Event_DELETE {
			deleted = append(deleted, string(event.Kv.Key))
		}
	}
	if s.overWith(deleted) {
		return
	}
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	if s.over {
		return
	}
	for _, key := range deleted {
		s.removedLocked(key) // before others vanish at the same time, which would admit it
	}
	for _, event := range events {
		if event.Type == mvccpb.Event_DELETE {
			s.deletedLocked(string(event.Kv.Key))
		} else {
			s.putLocked(event.Kv)
		}
	}
	s.applied = max(s.applied, applied)
	s.shown.Store(max(s.shown.Load(), shown))
	close(s.advanced)
	s.advanced = make(chan struct{})
}

// overWith reports whether the session is over because etcd has ended the lease. The key of
// the session then ends with those of its tickets. If an operator has deleted that key, the
// lease still exists.
func (s *session) overWith(deleted []string) bool {
	if slices.Contains(deleted, s.store.keys.session(s.id)) {
		for s.ctx.Err() == nil && s.renew() != nil {
			lease.Sleep(s.ctx, lease.RetryPause)
		}
	}
	return s.ctx.Err() != nil
}

// putLocked reports a key that was put, or that a read has found.
func (s *session) putLocked(kv *mvccpb.KeyValue) {
	st, key := s.store, string(kv.Key)
	if k, ok := st.keys.parseTicket(key); ok {
		s.ticketLocked(k, kv)
		return
	}
	if name, ok := st.keys.paused(key); ok {
		st.pausedLocked(name, kv)
		return
	}
	if number, ok := st.keys.evicted(key, s.id); ok {
		st.events.Evict(string(kv.Value), number)
		s.removeLocked(key)
	}
}

// ticketLocked reports a ticket, unless it is known. One with our lease that nobody
// wants, because a late request has made it, is deleted.
func (s *session) ticketLocked(k ticketKey, kv *mvccpb.KeyValue) {
	key := string(kv.Key)
	switch known, sent := s.tickets[key], s.sent[key]; {
	case known != nil:
		if !s.owns(known) && parseRecord(kv.Value).Inside {
			atomic.StoreUint64(&known.Ref, isInside)
		}
	case sent != nil:
		delete(s.sent, key)
		s.joinLocked(sent, k.number(kv.CreateRevision))
	case kv.Lease == int64(s.id):
		s.removeLocked(key)
	default:
		t := remoteTicket(k, kv)
		s.tickets[key] = t
		s.store.events.Appeared(t)
	}
}

// joinLocked reports a ticket of this process.
func (s *session) joinLocked(t *serializer.Ticket, number uint64) {
	t.Number = number
	if !s.store.events.Joined(t) {
		s.removeLocked(t.Key)
		return
	}
	s.tickets[t.Key] = t
	s.local++
}

// owns reports whether a ticket is of this process.
func (s *session) owns(t *serializer.Ticket) bool { return t.Ref == uint64(s.id) }

// removedLocked reports a ticket of this process that somebody else has deleted.
func (s *session) removedLocked(key string) {
	if t := s.tickets[key]; t != nil && s.owns(t) {
		delete(s.tickets, key)
		s.store.events.Removed(t)
	}
}

// deletedLocked reports a key that was deleted.
func (s *session) deletedLocked(key string) {
	s.removedLocked(key)
	if t := s.tickets[key]; t != nil {
		delete(s.tickets, key)
		s.store.events.Vanished(t)
		return
	}
	if name, ok := s.store.keys.paused(key); ok {
		s.store.resumedLocked(name)
	}
}

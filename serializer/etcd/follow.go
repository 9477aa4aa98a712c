package etcd

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

// follow begins a watch of the namespace, and then reads the namespace. So the watch shows
// all that happens after the read.
func (s *session) follow() (*watch, error) {
	prefix := string(s.store.keys)
	w, err := s.store.cluster.watch(s.Ctx, prefix)
	if err != nil {
		return nil, err
	}
	// If the last watch was lost with its connection, etcd may have been restored from a
	// backup. The read, which a majority confirms, lets checkHistory notice that.
	found, err := s.commit(s.Ctx, transaction{then: []clientv3.Op{clientv3.OpGet(prefix, clientv3.WithPrefix())}})
	if err == nil {
		err = s.checkHistory(found.Header, w.rev)
	}
	if err != nil {
		w.end(err)
		return nil, fmt.Errorf("reading the namespace: %w", err)
	}
	w.rev = found.Header.Revision
	s.reportAll(found.Responses[0].GetResponseRange().Kvs, w.rev)
	s.watch.Store(w)
	return w, nil
}

// pass reports the events of a watch, and of those that take its place, until the session
// is over.
func (s *session) pass(w *watch) {
	var err error
	for s.Ctx.Err() == nil {
		if w == nil {
			if w, err = s.follow(); err != nil {
				s.store.Complain(err)
				lease.Sleep(s.Ctx, lease.RetryPause)
			}
			if denied(err) {
				lease.Sleep(s.Ctx, refusedPause) // each attempt may log in
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

// reportAll reports how the namespace differs from what is known.
func (s *session) reportAll(found []*mvccpb.KeyValue, rev int64) {
	keys := s.store.keys
	// Those of one revision are in the order of their keys.
	slices.SortStableFunc(found, func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.CreateRevision, b.CreateRevision) })
	registered := slices.ContainsFunc(found, func(kv *mvccpb.KeyValue) bool { return string(kv.Key) == keys.session(s.id) })
	s.advance(!registered, rev, rev, func() {
		known, pauses := make(map[string]bool), make(map[string]bool)
		for _, kv := range found {
			key := string(kv.Key)
			t := s.Tickets[key]
			known[key] = t != nil && revisionOf(t.Number) == kv.CreateRevision
			if name, ok := keys.paused(key); ok {
				pauses[name] = true
			}
		}
		s.OnlyLocked(known, pauses)
		for _, kv := range found {
			s.putLocked(kv)
		}
	})
}

// report reports events, in order.
func (s *session) report(events []*clientv3.Event, applied, shown int64) {
	var deleted []string
	for _, event := range events {
		if event.Type == mvccpb.Event_DELETE {
			deleted = append(deleted, string(event.Kv.Key))
		}
	}
	s.advance(slices.Contains(deleted, s.store.keys.session(s.id)), applied, shown, func() {
		for _, key := range deleted {
			if t := s.Tickets[key]; t != nil && t.Local() {
				s.OutLocked(key) // before others vanish at the same time, which would admit it
			}
		}
		for _, event := range events {
			if event.Type == mvccpb.Event_DELETE {
				s.deletedLocked(string(event.Kv.Key))
			} else {
				s.putLocked(event.Kv)
			}
		}
	})
}

// advance reports something, after which all up to a revision are applied. The watch may be
// further than that. If the session's key is gone, etcd has ended the lease, and its tickets
// with it, or an operator has deleted that key.
func (s *session) advance(gone bool, applied, shown int64, reportLocked func()) {
	for gone && s.Ctx.Err() == nil && s.renew() != nil {
		lease.Sleep(s.Ctx, lease.RetryPause)
	}
	s.store.Mu.Lock()
	defer s.store.Mu.Unlock()
	if s.Over {
		return
	}
	reportLocked()
	s.applied = max(s.applied, applied)
	s.shown.Store(max(s.shown.Load(), shown))
	s.store.ChangedLocked()
}

// putLocked reports a key that was put, or that a read has found.
func (s *session) putLocked(kv *mvccpb.KeyValue) {
	keys, key := s.store.keys, string(kv.Key)
	if k, ok := keys.parseTicket(key); ok {
		s.ticketLocked(k, kv)
	} else if name, ok := keys.paused(key); ok {
		s.pausedLocked(name, kv)
	}
}

// ticketLocked reports a ticket. One with our lease that nobody wants, because a late request
// has made it, is deleted. A key without a lease is an operator's, and no process takes it out.
func (s *session) ticketLocked(k ticketKey, kv *mvccpb.KeyValue) {
	key := string(kv.Key)
	t := lease.RemoteTicket(key, k.number(kv.CreateRevision), string(kv.Value))
	t.Queue, t.Owner.Alive = k.queue, kv.Lease != 0
	switch {
	case s.Tickets[key] != nil:
		s.StateLocked(key, t.Ref)
	case kv.Lease == int64(s.id):
		s.JoinedLocked(key, key, t.Number)
	default:
		s.AppearedLocked(t)
	}
}

// deletedLocked reports a key that was deleted.
func (s *session) deletedLocked(key string) {
	s.OutLocked(key)
	if key == s.store.keys.history() {
		s.store.history.Store(nil)       // here, where all have seen that, it goes on with another text
		go func() { _ = s.register() }() // otherwise, the next session does that
	}
	if name, ok := s.store.keys.paused(key); ok {
		s.PausedLocked(name, time.Time{})
	}
}

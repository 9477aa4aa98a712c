package redis

import (
	"context"
	"errors"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

// Append implements [serializer.Store].
func (st *Store) Append(ctx context.Context, tickets []*serializer.Ticket) error {
	s, err := st.current(ctx)
	if err != nil {
		return err
	}
	return st.storageError("taking a ticket from", s.append(ctx, tickets))
}

// append has the script number tickets, and returns when they are reported. If it gives up,
// a request on its way may still make tickets. They are taken out when the log shows them.
func (s *session) append(ctx context.Context, tickets []*serializer.Ticket) error {
	r, removals := s.newBatch(tickets)
	defer s.abandon(r)
	for closed := false; ; {
		_, err := s.send(s.ctx, r)
		if err == nil {
			return nil
		}
		s.removeAgain(removals) // they need not wait for the tickets
		r.operations, removals = r.operations[2*len(removals):], nil
		switch {
		case errors.Is(err, errClosed) && !closed:
			closed = true
			s.store.log.Info("nobody is let in for now", "namespace", s.store.keys.namespace, "reason", err)
		case !errors.Is(err, errClosed) && !transient(err):
			return err
		}
		lease.Sleep(ctx, lease.RetryPause)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// newBatch prepares a request for tickets. It takes pending removals along: in a busy
// queue, callers often leave and return at once.
func (s *session) newBatch(tickets []*serializer.Ticket) (r request, removals []string) {
	st, now := s.store, time.Now()
	st.mu.Lock()
	defer st.mu.Unlock()
	removals = s.takeRemovalsLocked()
	r = newRequest("keep", removing(removals)...)
	r.appends = true
	for _, t := range tickets {
		t.Ref, t.Owner, t.Arrived = s.serial, st.owner, now
		r.operations = append(r.operations, "a", recordOf(t))
	}
	s.sent[r.tag] = append([]*serializer.Ticket{}, tickets...)
	return r, removals
}

// abandon forgets the tickets of a request that were not reported.
func (s *session) abandon(r request) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	delete(s.sent, r.tag)
}

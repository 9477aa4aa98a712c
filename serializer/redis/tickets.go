package redis

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Append implements [serializer.Store]. If it gives up, a request on its way may still make
// tickets. They are taken out when the log shows them.
func (st *Store) Append(ctx context.Context, tickets []*serializer.Ticket) error {
	s, err := st.await(ctx)
	if err != nil {
		return err
	}
	r := newRequest("keep")
	r.appends = true
	now := time.Now()
	for _, t := range tickets {
		t.Ref, t.Owner, t.Arrived = s.serial, st.owner, now
		r.operations = append(r.operations, "a", recordOf(t))
	}
	s.expect(r, slices.Clone(tickets))
	defer s.expect(r, nil)
	_, err = s.persist(ctx, r)
	return st.storageError("taking a ticket from", err)
}

// expect notes which tickets a request is for.
func (s *session) expect(r request, tickets []*serializer.Ticket) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	if tickets == nil {
		delete(s.sent, r.tag)
		return
	}
	s.sent[r.tag] = tickets
}

// Remove implements [serializer.Store].
func (st *Store) Remove(t *serializer.Ticket) {
	st.mu.Lock()
	defer st.mu.Unlock()
	s := st.sessions[t.Ref]
	s.local--
	if s.over {
		s.forgetIfLeftLocked()
		return
	}
	if s.tickets[t.Number] == t { // otherwise, somebody has taken it out
		delete(s.tickets, t.Number)
		s.removeLocked(t.Number)
	}
}

// removeLocked has tickets taken out by the next request. Numbers are never used again, so
// that may happen at any time, and more than once.
func (s *session) removeLocked(numbers ...uint64) {
	if s.removals = append(s.removals, numbers...); len(s.removals) > 0 {
		s.poll()
	}
}

func (s *session) removeAgain(numbers []uint64) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.removeLocked(numbers...)
}

// isInside is the Ref of a ticket of another process whose owner says that it is inside.
const isInside = 1

// Inside implements [serializer.Store].
func (st *Store) Inside(t *serializer.Ticket) bool { return atomic.LoadUint64(&t.Ref) == isInside }

// SetInside implements [serializer.Store].
func (st *Store) SetInside(t *serializer.Ticket, paused bool) {
	if paused {
		go func() {
			_, _ = st.do(st.ctx, "marking a ticket in", "i", strconv.FormatUint(t.Number, 10)) // it is for lists only
		}()
	}
}

// Evict implements [serializer.Store]. The log tells the owner, which alone knows whether
// the ticket is inside.
func (st *Store) Evict(ctx context.Context, t *serializer.Ticket) error {
	number := strconv.FormatUint(t.Number, 10)
	own, err := st.do(ctx, "asking the owner by", "e", number)
	if err == nil && !slices.Contains(own, "e "+number) {
		return serializer.ErrNoTicket
	}
	return err
}

// Pause implements [serializer.Store]. The pause lasts as long as until is ahead of this
// machine's clock. From then on, the server's clock counts.
func (st *Store) Pause(ctx context.Context, name string, until time.Time) error {
	length := int64(0) // for ever
	if until.Before(serializer.Forever) {
		length = max(time.Until(until).Microseconds()+1, 1)
	}
	pause := fmt.Sprintf("%s %d %d", url.PathEscape(name), until.UnixMicro(), length)
	_, err := st.do(ctx, "pausing a queue in", "p", pause)
	return err
}

// Resume implements [serializer.Store].
func (st *Store) Resume(ctx context.Context, name string) error {
	_, err := st.do(ctx, "resuming a queue in", "p", url.PathEscape(name)+" 0 0")
	return err
}

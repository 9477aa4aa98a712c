package postgres

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

// Append implements [serializer.Store].
func (st *Store) Append(ctx context.Context, tickets []*serializer.Ticket) error {
	return lease.Do(ctx, st.Store, "taking a ticket from", func(s *session) error {
		first := s.serial + 1
		s.serial += int64(len(tickets))
		s.Send(tickets, func(i int) string { return ticketID(first + int64(i)) })
		err := s.carryOut(ctx, s.insert(tickets, first))
		if s.Abandon() > 0 && err == nil {
			err = fmt.Errorf("somebody has deleted its row: %w", serializer.ErrEvicted)
		}
		return err
	})
}

// ticketID identifies a ticket of a session by its serial number there.
func ticketID(serial int64) string { return strconv.FormatInt(serial, 10) }

// insert is the change that adds tickets with serial numbers from first on.
func (s *session) insert(tickets []*serializer.Ticket, first int64) *change {
	n := len(tickets)
	queues, clients := make([][]byte, n), make([]string, n)
	shared, limits := make([]bool, n), make([]int64, n)
	for i, t := range tickets {
		queues[i], shared[i], limits[i] = []byte(t.Queue), t.Rule.Shared, int64(t.Rule.Limit)
		if t.Client.IsValid() {
			clients[i] = t.Client.String()
		}
	}
	c := newChange("insert", s.id, first, n, queues, clients, shared, limits)
	c.tickets = n
	return c
}

// carryOut has the next round carry out a change, and waits for the result.
func (s *session) carryOut(ctx context.Context, c *change) error {
	s.store.Mu.Lock()
	s.changes = append(s.changes, c)
	s.store.Mu.Unlock()
	s.Wake()
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.Ctx.Done():
		return context.Cause(s.Ctx)
	}
}

// do has the next round carry out a statement, and returns how many rows it has affected.
func (st *Store) do(ctx context.Context, statement string, args ...any) (rows int64, err error) {
	err = lease.Do(ctx, st.Store, "changing queues in", func(s *session) error {
		c := newChange(statement, args...)
		err := s.carryOut(ctx, c)
		if err == nil {
			rows = c.rows
		}
		return err
	})
	return rows, err
}

// Sync implements [serializer.Store].
func (st *Store) Sync(ctx context.Context) error {
	_, err := st.do(ctx, "")
	return err
}

// SetInside implements [serializer.Store].
func (st *Store) SetInside(t *serializer.Ticket, paused bool) {
	if paused {
		go func() { _, _ = st.do(st.Ctx, "set inside", t.Number, true) }() // it is for lists only
	}
}

// Evict implements [serializer.Store]. The ticket's row asks its owner, which alone knows
// whether it is inside. The owner takes the request back when it has obeyed.
func (st *Store) Evict(ctx context.Context, t *serializer.Ticket) error {
	rows, err := st.do(ctx, "set evict", t.Number, true)
	if err == nil && rows == 0 {
		return serializer.ErrNoTicket
	}
	for err == nil && st.isAsked(ctx, t) {
		lease.Sleep(ctx, lease.RetryPause/4)
		err = st.Sync(ctx)
	}
	return err
}

// isAsked reports whether the owner of a ticket has not obeyed yet.
func (st *Store) isAsked(ctx context.Context, t *serializer.Ticket) (asked bool) {
	_ = lease.Do(ctx, st.Store, "", func(s *session) error { // without a session, Sync says why
		st.Mu.Lock()
		defer st.Mu.Unlock()
		asked = s.Tickets[t.Key] == t && atomic.LoadUint64(&t.Ref)&lease.IsAsked != 0
		return nil
	})
	return asked
}

// Pause implements [serializer.Store]. The pause lasts as long as until is ahead of this
// machine's clock. The server measures that on its own clock, and the first process that
// notices ends it for all.
func (st *Store) Pause(ctx context.Context, name string, until time.Time) error {
	var length *int64 // in microseconds; nil is without end
	if until.Before(serializer.Forever) {
		length = new(time.Until(until).Microseconds() + 1)
	}
	_, err := st.do(ctx, "pause", []byte(name), until.UTC().Format(time.RFC3339Nano), length)
	if err != nil {
		return fmt.Errorf("pausing queue %q: %w", name, err)
	}
	return nil
}

// Resume implements [serializer.Store].
func (st *Store) Resume(ctx context.Context, name string) error {
	_, err := st.do(ctx, "resume", []byte(name))
	if err != nil {
		return fmt.Errorf("resuming queue %q: %w", name, err)
	}
	return nil
}

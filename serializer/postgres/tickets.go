package postgres

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

// Append implements [serializer.Store].
func (st *Store) Append(ctx context.Context, tickets []*serializer.Ticket) error {
	return lease.Do(ctx, st.Store, "taking a ticket from", func(s *session) error {
		first := s.serial + 1
		s.serial += int64(len(tickets))
		records := s.Send(tickets, func(i int) string { return ticketID(first + int64(i)) })
		_, err := s.carryOut(ctx, newChange("insert", s.id, first, len(tickets), records))
		if s.Abandon() > 0 && err == nil {
			err = fmt.Errorf("somebody has deleted its row: %w", serializer.ErrEvicted)
		}
		return err
	})
}

// ticketID identifies a ticket of a session by its serial number there.
func ticketID(serial int64) string { return strconv.FormatInt(serial, 10) }

// carryOut has the next round carry out a change, and returns how many rows it has affected.
func (s *session) carryOut(ctx context.Context, c *change) (rows int64, err error) {
	s.store.Mu.Lock()
	s.changes = append(s.changes, c)
	s.store.Mu.Unlock()
	s.Wake()
	select {
	case err := <-c.done:
		return c.rows, err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-s.Ctx.Done():
		return 0, context.Cause(s.Ctx)
	}
}

// do carries out a statement in the current session.
func (st *Store) do(ctx context.Context, statement string, args ...any) (rows int64, err error) {
	err = lease.Do(ctx, st.Store, "changing queues in", func(s *session) (err error) {
		rows, err = s.carryOut(ctx, newChange(statement, args...))
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
	for err == nil && st.IsAsked(t) {
		lease.Sleep(ctx, lease.RetryPause/4)
		err = st.Sync(ctx)
	}
	return err
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
	return err
}

// Resume implements [serializer.Store].
func (st *Store) Resume(ctx context.Context, name string) error {
	_, err := st.do(ctx, "resume", []byte(name))
	return err
}

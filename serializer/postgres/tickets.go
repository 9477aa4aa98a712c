package postgres

import (
	"context"
	"database/sql/driver"
	"errors"
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
		records := s.Send(tickets, func(i int) string { return strconv.FormatInt(first+int64(i), 10) })
		err := s.carryOut(ctx, newChange("insert", s.id, first, len(tickets), records))
		if s.Abandon() > 0 && err == nil {
			err = fmt.Errorf("somebody has deleted its row: %w", serializer.ErrEvicted)
		}
		return err
	})
}

// carryOut has the next round carry out a change.
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

// do carries out a statement in the current session.
func (st *Store) do(ctx context.Context, statement string, args ...any) (c *change, err error) {
	c = newChange(statement, args...)
	return c, lease.Do(ctx, st.Store, "changing queues in", func(s *session) error { return s.carryOut(ctx, c) })
}

// Sync implements [serializer.Store].
func (st *Store) Sync(ctx context.Context) error {
	_, err := st.do(ctx, "")
	return err
}

// MarkInside implements [lease.Protocol].
func (s *session) MarkInside(t *serializer.Ticket) {
	_ = s.carryOut(s.Ctx, newChange("set inside", t.Number, true))
}

// Evict implements [serializer.Store]. The ticket's row asks its owner, which alone knows
// whether it is inside. The owner takes the request back when it has obeyed.
func (st *Store) Evict(ctx context.Context, t *serializer.Ticket) error {
	c, err := st.do(ctx, "set evict", t.Number, true)
	switch {
	case err == nil && c.rows == 0 && c.repeated:
		return st.StorageError("asking the owner by", errors.New("the answer was lost; the ticket is out now, perhaps by this request"))
	case err == nil && c.rows == 0:
		return serializer.ErrNoTicket
	}
	return st.AwaitOwner(ctx, t, err, st.Sync)
}

// whenSent is the time at which it is sent, by this machine's clock.
type whenSent struct{}

// Value implements [driver.Valuer].
func (whenSent) Value() (driver.Value, error) { return time.Now(), nil }

// Pause implements [serializer.Store]. The pause lasts as long as until is ahead of this
// machine's clock when it is sent. The server measures that on its own clock, and the first
// process that notices ends it for all.
func (st *Store) Pause(ctx context.Context, name string, until time.Time) error {
	_, err := st.do(ctx, "pause", []byte(name), until.UTC().Format(time.RFC3339Nano), whenSent{})
	return err
}

// Resume implements [serializer.Store].
func (st *Store) Resume(ctx context.Context, name string) error {
	_, err := st.do(ctx, "resume", []byte(name))
	return err
}

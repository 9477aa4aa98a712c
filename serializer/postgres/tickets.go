package postgres

import (
	"context"
	"strconv"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Append implements [lease.Protocol].
func (s *session) Append(ctx context.Context, tickets []*serializer.Ticket) error {
	first := s.serial + 1
	s.serial += int64(len(tickets))
	records := s.Send(tickets, func(i int) string { return strconv.FormatInt(first+int64(i), 10) })
	return s.carryOut(ctx, newChange("insert", s.id, first, len(tickets), records))
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

// Sync implements [lease.Protocol].
func (s *session) Sync(ctx context.Context) error { return s.carryOut(ctx, newChange("")) }

// Evict implements [lease.Protocol]. The ticket's row asks its owner.
func (s *session) Evict(ctx context.Context, t *serializer.Ticket) error {
	return s.carryOut(ctx, newChange("ask", t.Number))
}

// Pause implements [lease.Protocol].
func (s *session) Pause(ctx context.Context, name string, until time.Time) error {
	if until.IsZero() {
		return s.carryOut(ctx, newChange("resume", []byte(name)))
	}
	return s.carryOut(ctx, newChange("pause", []byte(name), until.UTC().Format(time.RFC3339Nano)))
}

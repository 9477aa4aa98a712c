package redis

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Append implements [lease.Protocol]. If it gives up, a request on its way may still make
// tickets. They are taken out when the log shows them.
func (s *session) Append(ctx context.Context, tickets []*serializer.Ticket) error {
	r := newRequest("keep")
	for _, record := range s.Send(tickets, func(i int) string { return ticketID(r.tag, i) }) {
		r.operations = append(r.operations, "a", record)
	}
	return s.persist(ctx, r)
}

// Sync implements [lease.Protocol].
func (s *session) Sync(ctx context.Context) error { return s.do(ctx) }

// Evict implements [lease.Protocol]. The owner reads it in the log, and answers there.
func (s *session) Evict(ctx context.Context, t *serializer.Ticket) error {
	return s.do(ctx, "e", t.Key)
}

// Pause implements [lease.Protocol].
func (s *session) Pause(ctx context.Context, name string, until time.Time) error {
	micros := int64(0) // it is over
	if !until.IsZero() {
		micros = until.UnixMicro()
	}
	return s.do(ctx, "p", fmt.Sprintf("%s %d", url.PathEscape(name), micros))
}

// do has the script carry out operations. All changes before are then reported.
func (s *session) do(ctx context.Context, operations ...any) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case s.store.slots <- struct{}{}:
		defer func() { <-s.store.slots }()
	}
	return s.persist(ctx, newRequest("keep", operations...))
}

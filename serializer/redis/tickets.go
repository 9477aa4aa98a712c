package redis

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lease"
)

// Append implements [serializer.Store]. If it gives up, a request on its way may still make
// tickets. They are taken out when the log shows them.
func (st *Store) Append(ctx context.Context, tickets []*serializer.Ticket) error {
	return lease.Do(ctx, st.Store, "taking a ticket from", func(s *session) error {
		r := newRequest("keep")
		for _, record := range s.Send(tickets, func(i int) string { return ticketID(r.tag, i) }) {
			r.operations = append(r.operations, "a", record)
		}
		defer s.Abandon()
		_, err := s.persist(ctx, r)
		return err
	})
}

// Evict implements [serializer.Store]. The owner reads it in the log, and answers there. It alone
// knows whether the ticket is inside.
func (st *Store) Evict(ctx context.Context, t *serializer.Ticket) error {
	own, err := st.do(ctx, "asking the owner by", "e", t.Key)
	if err == nil && !slices.Contains(own, "e "+t.Key) {
		return serializer.ErrNoTicket
	}
	return st.AwaitOwner(ctx, t, err, st.Sync)
}

// Pause implements [serializer.Store]. The pause lasts as long as until is ahead of this
// machine's clock when the request is sent. From then on, the server's clock counts.
func (st *Store) Pause(ctx context.Context, name string, until time.Time) error {
	_, err := st.do(ctx, "pausing a queue in", "p", fmt.Sprintf("%s %d", url.PathEscape(name), until.UnixMicro()))
	return err
}

// Resume implements [serializer.Store].
func (st *Store) Resume(ctx context.Context, name string) error {
	_, err := st.do(ctx, "resuming a queue in", "p", url.PathEscape(name)+" 0")
	return err
}

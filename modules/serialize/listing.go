package serialize

import (
	"cmp"
	"context"
	"slices"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueapi"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// listedQueue is a queue, or what keeps it from being read.
type listedQueue struct {
	queueapi.Queue
	engines []*sharedEngine // that it is in
	failure error
}

// allQueues lists the queues of all engines, in the order of paths and prefixes.
// It is never nil. Engines of one space have the same queues: each queue is
// listed once.
func allQueues(ctx context.Context) []listedQueue {
	queues := make([]listedQueue, 0)
	for _, engine := range openEngines() {
		states, err := engine.Queues(ctx)
		if err != nil {
			queues = append(queues, engine.unreadable(err)...)
			continue
		}
		for _, state := range states {
			queues = append(queues, listedQueue{Queue: queueapi.Queue{QueueState: withTickets(state)}, engines: []*sharedEngine{engine}})
		}
	}
	slices.SortStableFunc(queues, func(a, b listedQueue) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Prefix, b.Prefix),
			cmp.Compare(a.engines[0].space, b.engines[0].space), cmp.Compare(a.Error, b.Error))
	})
	merged := queues[:0]
	for _, queue := range queues {
		if n := len(merged); n > 0 && merged[n-1].same(&queue) {
			merged[n-1].merge(&queue)
			continue
		}
		merged = append(merged, queue)
	}
	return merged
}

// same reports whether two are the same queue, of engines of one space.
func (q *listedQueue) same(o *listedQueue) bool {
	return q.Path == o.Path && q.Prefix == o.Prefix && q.engines[0].space == o.engines[0].space
}

// merge adds what another engine knows of the queue. An engine that cannot read it
// adds nothing.
func (q *listedQueue) merge(o *listedQueue) {
	q.engines = append(q.engines, o.engines...)
	if o.failure != nil {
		return
	}
	q.Limit = serializer.Wider(q.Limit, o.Limit)
	if o.PausedUntil != nil && (q.PausedUntil == nil || q.PausedUntil.Before(*o.PausedUntil)) {
		q.PausedUntil = o.PausedUntil
	}
	for _, t := range o.Tickets {
		i := slices.IndexFunc(q.Tickets, func(known serializer.TicketState) bool { return known.Token == t.Token })
		switch {
		case i < 0: // it came between the two readings
			q.Tickets = append(q.Tickets, t)
		case t.Requester != nil: // this engine serves it, and knows more of it
			q.Tickets[i] = t
		}
	}
	q.Inside, q.Waiting = 0, 0
	for _, t := range q.Tickets {
		if t.State == serializer.StateInside {
			q.Inside++
		} else {
			q.Waiting++
		}
	}
}

// evict takes out a ticket. An engine without such a ticket returns an error.
func (q *listedQueue) evict(ctx context.Context, token uint64) error {
	err := serializer.ErrNoTicket
	for _, engine := range q.engines {
		if err = engine.Evict(ctx, q.Prefix, token); err == nil {
			return nil
		}
	}
	return err
}

// openEngines are the engines in use. The pool is not held while they are
// asked: an engine whose disk hangs must not keep configurations from loading.
func openEngines() (engines []*sharedEngine) {
	enginePool.Range(func(_, value any) bool {
		if engine, ok := value.(*sharedEngine); ok {
			engines = append(engines, engine)
		}
		return true
	})
	slices.SortFunc(engines, func(a, b *sharedEngine) int { return cmp.Compare(a.key, b.key) })
	return engines
}

// withTickets makes sure that no tickets are an empty list in JSON, not null.
func withTickets(state serializer.QueueState) serializer.QueueState {
	if state.Tickets == nil {
		state.Tickets = make([]serializer.TicketState, 0)
	}
	return state
}

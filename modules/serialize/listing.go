package serialize

import (
	"cmp"
	"context"
	"slices"
	"time"

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
	for _, engine := range registered.openEngines() {
		states, err := engine.describedQueues(ctx)
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

// describedQueues lists the engine's queues with what this process knows of them, and
// those of the configuration, too, though nobody may be in them.
func (e *sharedEngine) describedQueues(ctx context.Context) ([]serializer.QueueState, error) {
	states, err := e.Queues(ctx)
	if err != nil {
		return nil, err
	}
	states = e.withConfigured(states)
	describeRequests(states)
	slices.SortFunc(states, func(a, b serializer.QueueState) int { return cmp.Compare(a.Prefix, b.Prefix) })
	return states, nil
}

// limits are the limits of the queues whose names are known from the configuration. If
// handlers differ, it is the widest.
func (e *sharedEngine) limits() map[string]int {
	limits := make(map[string]int)
	for _, m := range registered.membersWhere(func(m *member) bool { return m.engine == e && !m.many }) {
		limit, again := limits[m.queue]
		if !again {
			limit = m.limit
		}
		limits[m.queue] = serializer.Wider(limit, m.limit)
	}
	return limits
}

// withConfigured adds the queues of the configuration, and their limits.
func (e *sharedEngine) withConfigured(states []serializer.QueueState) []serializer.QueueState {
	limits := e.limits()
	for i, state := range states {
		if limit, ok := limits[state.Prefix]; ok {
			states[i].Limit = limit
			delete(limits, state.Prefix)
		}
	}
	listed := states
	for queue, limit := range limits { // those with nobody in them
		states = append(states, serializer.QueueState{Path: e.Path(), Prefix: queue, Limit: limit, PausedUntil: pauseOf(listed, queue)})
	}
	return states
}

// pauseOf is the end of the last pause with a * that applies to a queue which nobody is
// in, or nil. A list has such a pause as a queue of its own.
func pauseOf(states []serializer.QueueState, queue string) (end *time.Time) {
	for _, state := range states {
		if state.PausedUntil != nil && queueapi.Matches(state.Prefix, queue) && (end == nil || state.PausedUntil.After(*end)) {
			end = state.PausedUntil
		}
	}
	return end
}

// describeRequests adds the requests to the tickets of this process.
func describeRequests(states []serializer.QueueState) {
	for _, state := range states {
		for i := range state.Tickets {
			t := &state.Tickets[i]
			if t.Requester == nil {
				continue
			}
			t.Request = new(t.Requester.Request())
			if v, ok := t.Requester.(interface{ RevokedAt() time.Time }); ok {
				t.Revoked = v.RevokedAt()
			}
		}
	}
}

// unreadable lists the queues of an engine that cannot be read: those of the
// configuration, or one without a name if none is known.
func (e *sharedEngine) unreadable(err error) (queues []listedQueue) {
	path, limits := e.Path(), e.limits()
	if len(limits) == 0 {
		limits[""] = 0
	}
	for prefix, limit := range limits {
		state := withTickets(serializer.QueueState{Path: path, Prefix: prefix, Limit: limit})
		queues = append(queues, listedQueue{Queue: queueapi.Queue{QueueState: state, Error: err.Error()}, engines: []*sharedEngine{e}, failure: err})
	}
	return queues
}

// withTickets makes sure that no tickets are an empty list in JSON, not null.
func withTickets(state serializer.QueueState) serializer.QueueState {
	if state.Tickets == nil {
		state.Tickets = make([]serializer.TicketState, 0)
	}
	return state
}

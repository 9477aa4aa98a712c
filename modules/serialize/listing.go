package serialize

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/orderly-http/caddy-orderly/internal/command"
	"github.com/orderly-http/caddy-orderly/modules/internal/engines"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueview"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/waitingpage"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// listedQueue is a queue, or what keeps it from being read.
type listedQueue struct {
	queueview.Queue
	engine *engines.Shared // that can read it, if one can
}

// queuesOf lists the queues of the engines that have names, or with nil of all, in the order
// of paths and prefixes. It is never nil. Engines of one space have the same queues: each is
// listed once, with the requests that any of them serves.
func queuesOf(ctx context.Context, names map[*engines.Shared]string) []*listedQueue {
	asked := slices.DeleteFunc(engines.All(), func(e *engines.Shared) bool { return names != nil && names[e] == "" })
	lists := engines.AskAll(asked, func(e *engines.Shared) []*listedQueue { return listQueues(ctx, e) })
	type key struct{ space, prefix string }
	known := make(map[key]*listedQueue)
	for _, q := range slices.Concat(lists...) {
		k := key{q.engine.Space, q.Prefix}
		listed := known[k]
		if listed == nil || listed.Error != "" {
			known[k] = q
			continue
		}
		served := make(map[string]serializer.TicketState)
		for _, t := range q.Tickets {
			if t.Requester != nil {
				served[t.Token] = t
			}
		}
		for i, t := range listed.Tickets {
			if ours, ok := served[t.Token]; ok {
				listed.Tickets[i] = ours
			}
		}
	}
	queues := slices.AppendSeq(make([]*listedQueue, 0), maps.Values(known))
	slices.SortFunc(queues, func(a, b *listedQueue) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Prefix, b.Prefix), cmp.Compare(a.engine.Key, b.engine.Key))
	})
	return queues
}

// ticket finds a ticket by its number; nil if it is not in the queue.
func (q *listedQueue) ticket(token string) *serializer.TicketState {
	if i := slices.IndexFunc(q.Tickets, func(t serializer.TicketState) bool { return t.Token == token }); i >= 0 {
		return &q.Tickets[i]
	}
	return nil
}

// listQueues lists the engine's queues, and those of the configuration, though nobody may
// be in them. If the engine cannot be read, these have its error; if none is known, one
// without a name has it.
func listQueues(ctx context.Context, e *engines.Shared) (queues []*listedQueue) {
	states, err := e.Queues(ctx)
	configured := registered.handlersWhere(func(s *Handler) bool { return s.engine.Space == e.Space })
	none := make([]serializer.TicketState, 0) // in JSON an empty list, not null
	listed := make(map[string]bool)
	for _, state := range states {
		listed[state.Prefix] = true
		for i := range state.Tickets {
			addRequest(&state.Tickets[i])
		}
	}
	for _, s := range configured {
		if !s.prefix.Many() && !listed[s.prefix.Names] {
			listed[s.prefix.Names] = true
			states = append(states, serializer.QueueState{Prefix: s.prefix.Names, PausedUntil: e.PausedUntil(s.prefix.Names), Tickets: none})
		}
	}
	if len(states) == 0 && err != nil {
		states = append(states, serializer.QueueState{Tickets: none})
	}
	for _, state := range states {
		handlers := slices.DeleteFunc(slices.Clone(configured), func(s *Handler) bool { return !s.prefix.CanBe(state.Prefix) })
		q, _ := usageOf(handlers)
		if len(handlers) > 0 {
			state.Limit = q.Limit
		}
		if err != nil {
			q.Error = err.Error()
		}
		state.Path = e.Path()
		q.QueueState = state
		queues = append(queues, &listedQueue{q, e})
	}
	return queues
}

// maxRequestText is how many characters a list has of a text that a client chose.
const maxRequestText = 256

// addRequest adds the request of a ticket, if this process serves it. Nothing in its texts
// controls a terminal.
func addRequest(t *serializer.TicketState) {
	switch by := t.Requester.(type) {
	case nil:
		return
	case *waitingpage.Ticket:
		t.Requests, t.LastRequest, t.HeldUntil = by.Visited()
	case *passage:
		if by.held.Load() != nil {
			t.HeldUntil = by.heldUntil.UTC()
		}
		if revoked := by.context.Revoked(); revoked != nil {
			t.Revoked = revoked.Time
		}
	}
	for _, text := range t.Request.Texts() {
		*text = command.Printable(queueview.Cut(*text, maxRequestText))
	}
}

package serialize

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/command"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueapi"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/waitingpage"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// listedQueue is a queue, or what keeps it from being read.
type listedQueue struct {
	queueapi.Queue
	engines  []*sharedEngine // that it is in
	settings member          // of its handlers; zero if none is known
}

// allQueues lists the queues of all engines, in the order of paths and prefixes. It is
// never nil. Engines of one space have the same queues: each queue is listed once.
func allQueues(ctx context.Context) []*listedQueue {
	type key struct{ space, prefix string }
	known := make(map[key]*listedQueue)
	for _, e := range registered.openEngines() {
		for _, q := range e.listQueues(ctx) {
			k := key{e.space, q.Prefix}
			if known[k] == nil {
				known[k] = q
			} else {
				known[k].merge(q)
			}
		}
	}
	queues := slices.AppendSeq(make([]*listedQueue, 0), maps.Values(known))
	slices.SortFunc(queues, func(a, b *listedQueue) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Prefix, b.Prefix), cmp.Compare(a.engines[0].key, b.engines[0].key))
	})
	return queues
}

// merge adds what another engine of the space knows of the queue: the requests that it
// serves.
func (q *listedQueue) merge(o *listedQueue) {
	q.engines = append(q.engines, o.engines...)
	if q.Error != "" {
		q.Queue = o.Queue
	}
	for _, t := range o.Tickets {
		if known := q.ticket(t.Token); known != nil && t.Requester != nil {
			*known = t
		}
	}
}

// ticket finds a ticket by its number; nil if it is not in the queue.
func (q *listedQueue) ticket(token string) *serializer.TicketState {
	for i := range q.Tickets {
		if q.Tickets[i].Token == token {
			return &q.Tickets[i]
		}
	}
	return nil
}

// listQueues lists the engine's queues, and those of the configuration, though nobody may
// be in them. If the engine cannot be read, these have its error; if none is known, one
// without a name has it.
func (e *sharedEngine) listQueues(ctx context.Context) (queues []*listedQueue) {
	states, err := e.describedQueues(ctx)
	members := registered.membersWhere(func(m *member) bool { return m.engine.space == e.space })
	none := make([]serializer.TicketState, 0) // in JSON an empty list, not null
	listed := make(map[string]bool)
	for _, state := range states {
		listed[state.Prefix] = true
	}
	for _, m := range members {
		if !m.many && !listed[m.queue] {
			listed[m.queue] = true
			states = append(states, serializer.QueueState{Prefix: m.queue, PausedUntil: e.PausedUntil(m.queue), Tickets: none})
		}
	}
	if len(states) == 0 && err != nil {
		states = append(states, serializer.QueueState{Tickets: none})
	}
	for _, state := range states {
		q := &listedQueue{Queue: queueapi.Queue{QueueState: state}, engines: []*sharedEngine{e}, settings: settingsOf(members, state.Prefix)}
		q.Path = e.Path()
		if q.settings.queue == state.Prefix {
			q.Limit = q.settings.limit
		}
		if err != nil {
			q.Error = err.Error()
		}
		queues = append(queues, q)
	}
	return queues
}

// settingsOf is what the handlers of a queue say of it. A prefix with placeholders counts
// only if no handler has the queue's name.
func settingsOf(members []member, queue string) member {
	for _, many := range []bool{false, true} {
		others := func(m member) bool { return m.many != many || !m.covers(queue) }
		if found := slices.DeleteFunc(slices.Clone(members), others); len(found) > 0 {
			return widest(found)
		}
	}
	return member{}
}

// maxRequestText is how many characters a list has of a text that a client chose.
const maxRequestText = 256

// describedQueues lists the engine's queues with the requests of this process. Nothing in
// the requests' texts controls a terminal.
func (e *sharedEngine) describedQueues(ctx context.Context) ([]serializer.QueueState, error) {
	states, err := e.Queues(ctx)
	for _, state := range states {
		for i := range state.Tickets {
			t := &state.Tickets[i]
			if t.Requester == nil {
				continue
			}
			if browser, ok := t.Requester.(*waitingpage.Ticket); ok {
				t.Requester = browser.Served()
			}
			r := t.Requester.Request()
			for _, text := range []*string{&r.Method, &r.Host, &r.Path, &r.ClientIP, &r.TXID} {
				*text = command.Printable(queueapi.Cut(*text, maxRequestText))
			}
			t.Request = &r
			if v, ok := t.Requester.(*visit); ok && v.revoked.Load() != nil {
				t.Revoked = v.revoked.Load().at
			}
		}
	}
	return states, err
}

const (
	// maxInsideLogged is how many requests a log entry names as inside.
	maxInsideLogged = 10

	// insidePatience is how long a request may wait until its engine has listed who is
	// inside. It happens once a second at most.
	insidePatience = 100 * time.Millisecond
)

// insideTexts describes the requests ahead of a ticket, of all processes. There are none if
// the engine fails.
func (e *sharedEngine) insideTexts(queue string, token uint64) (texts []string) {
	ctx, cancel := context.WithTimeout(context.Background(), insidePatience)
	defer cancel()
	states, _ := e.describedQueues(ctx)
	for _, q := range states {
		if q.Prefix != queue {
			continue
		}
		for _, t := range q.Tickets {
			if t.Token == strconv.FormatUint(token, 10) || len(texts) == maxInsideLogged {
				break
			}
			texts = append(texts, command.Printable(queueapi.Describe(t)))
		}
	}
	return texts
}

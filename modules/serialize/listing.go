package serialize

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/command"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueapi"
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
	type key struct{ space, path, prefix string }
	known := make(map[key]*listedQueue)
	queues := make([]*listedQueue, 0)
	for _, e := range registered.openEngines() {
		for _, q := range e.listQueues(ctx) {
			k := key{e.space, q.Path, q.Prefix}
			if known[k] != nil {
				known[k].merge(q)
				continue
			}
			known[k] = q
			queues = append(queues, q)
		}
	}
	slices.SortStableFunc(queues, func(a, b *listedQueue) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Prefix, b.Prefix))
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
		i := slices.IndexFunc(q.Tickets, func(known serializer.TicketState) bool { return known.Token == t.Token })
		if i >= 0 && t.Requester != nil {
			q.Tickets[i] = t
		}
	}
}

// ticket finds a ticket by its number.
func (q *listedQueue) ticket(token string) (t serializer.TicketState, ok bool) {
	i := slices.IndexFunc(q.Tickets, func(t serializer.TicketState) bool { return t.Token == token })
	if i < 0 {
		return t, false
	}
	return q.Tickets[i], true
}

// listQueues lists the engine's queues, and those of the configuration, though nobody may
// be in them. If the engine cannot be read, these have its error; if none is known, one
// without a name has it.
func (e *sharedEngine) listQueues(ctx context.Context) (queues []*listedQueue) {
	states, err := e.describedQueues(ctx)
	members := registered.membersWhere(func(m *member) bool { return m.engine.space == e.space })
	listed := make(map[string]bool)
	add := func(state serializer.QueueState) {
		if listed[state.Prefix] {
			return
		}
		listed[state.Prefix] = true
		q := &listedQueue{Queue: queueapi.Queue{QueueState: state}, engines: []*sharedEngine{e}, settings: settingsOf(members, state.Prefix)}
		q.Path = e.Path()
		if q.settings.queue == state.Prefix {
			q.Limit = q.settings.limit
		}
		if q.Tickets == nil {
			q.Tickets = make([]serializer.TicketState, 0) // in JSON an empty list, not null
		}
		if err != nil {
			q.Error = err.Error()
		}
		queues = append(queues, q)
	}
	for _, state := range states {
		add(state)
	}
	for _, m := range members {
		if !m.many {
			add(serializer.QueueState{Prefix: m.queue, PausedUntil: pauseOf(states, m.queue)})
		}
	}
	if len(queues) == 0 && err != nil {
		add(serializer.QueueState{})
	}
	return queues
}

// settingsOf is what the handlers of a queue say of it. If they differ, each limit is the
// widest. A prefix with placeholders counts only if no handler has the queue's name.
func settingsOf(members []member, queue string) (all member) {
	found := false
	for _, m := range members {
		switch {
		case !m.covers(queue) || found && m.many && !all.many:
		case !found || all.many && !m.many:
			all, found = m, true
		default:
			all.limit = serializer.Wider(all.limit, m.limit)
			all.queueLength = serializer.Wider(all.queueLength, m.queueLength)
			all.dryRun = all.dryRun || m.dryRun
		}
	}
	return all
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
			r := t.Requester.Request()
			for _, text := range []*string{&r.Method, &r.Host, &r.Path} {
				*text = command.Printable(queueapi.Cut(*text, maxRequestText))
			}
			t.Request = &r
			if v, ok := t.Requester.(interface{ RevokedAt() time.Time }); ok {
				t.Revoked = v.RevokedAt()
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

// insideTexts describes the requests ahead of a ticket, of all processes. Of one of another
// process, only the peer of its connection is known. There are none if the engine fails.
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
			text := queueapi.RequestOf(t)
			if t.Request != nil && t.Request.TXID != "" {
				text += ", txid " + queueapi.TXIDText(t)
			}
			texts = append(texts, text+", "+command.Printable(t.Owner))
		}
	}
	return texts
}

// isAt reports whether the engine keeps its queues at a path, which may be the engine's own
// name of the place.
func (e *sharedEngine) isAt(path string) bool {
	return path == e.Path() || path == e.directory || path == realPath(e.directory)
}

// paused is a queue that is paused, or all whose names begin alike.
type paused struct {
	name   string
	engine *sharedEngine
}

// collectPaused asks all engines.
func collectPaused(ctx context.Context) (all []paused) {
	for _, e := range registered.openEngines() {
		states, _ := e.Queues(ctx) // if it fails, its requests are refused, which other metrics show
		for _, state := range states {
			if state.PausedUntil != nil {
				all = append(all, paused{state.Prefix, e})
			}
		}
	}
	return all
}

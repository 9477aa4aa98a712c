package etcd

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/queue"
)

// Queues implements [serializer.Engine]. It lists the queues of the namespace at one
// moment, with the tickets of all machines. The rule of admission determines which are
// inside. For a remote ticket, Since is its arrival by its machine's clock.
func (e *Engine) Queues(ctx context.Context) ([]serializer.QueueState, error) {
	s, err := e.current(ctx)
	if err != nil {
		return nil, err
	}
	found, err := e.request(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{get(allOf(string(e.keys)))}})
	if err != nil {
		return nil, e.storageError("reading queues from etcd", err)
	}
	tickets := make(map[string][]*mvccpb.KeyValue)
	ends := make(map[string]time.Time)
	for _, kv := range found.kvs(0) {
		if queue, ok := e.keys.paused(string(kv.Key)); ok {
			if p, err := parsePause(kv.Value); err == nil {
				ends[queue] = p.Until
				if tickets[queue] == nil {
					tickets[queue] = []*mvccpb.KeyValue{} // it is listed without tickets, too
				}
			}
			continue
		}
		if queue, _, ok := e.keys.parseTicket(string(kv.Key)); ok {
			tickets[queue] = append(tickets[queue], kv)
		}
	}
	states := make([]serializer.QueueState, 0, len(tickets))
	for _, queue := range slices.Sorted(maps.Keys(tickets)) {
		if q := s.state(queue, tickets[queue], ends); len(q.Tickets) > 0 || q.PausedUntil != nil {
			states = append(states, q)
		}
	}
	return states, nil
}

// listedTicket is a ticket's key, and its value.
type listedTicket struct {
	*mvccpb.KeyValue
	record
}

// state describes one queue.
func (s *session) state(queue string, keys []*mvccpb.KeyValue, ends map[string]time.Time) serializer.QueueState {
	e, now := s.engine, s.engine.now()
	q := serializer.QueueState{Path: e.Path(), Prefix: queue, Tickets: []serializer.TicketState{}}
	tickets := make([]listedTicket, len(keys))
	slices.SortFunc(keys, func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.CreateRevision, b.CreateRevision) })
	for i, kv := range keys {
		tickets[i] = listedTicket{kv, parseRecord(kv.Value)}
		if group := tickets[i].Group; group != "" && !slices.Contains(q.Groups, group) {
			q.Groups = append(q.Groups, group)
		}
	}
	if end := pauseEnd(queue, q.Groups, func(name string) time.Time { return ends[name] }); !end.IsZero() {
		q.PausedUntil = &end
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	tickets = slices.DeleteFunc(tickets, func(t listedTicket) bool {
		_, left := s.leaving[string(t.Key)]
		return left
	})
	inside := admitted(tickets)
	for i, t := range tickets {
		state, local := t.state(), s.tickets[string(t.Key)]
		isInside := i < inside
		if q.PausedUntil != nil {
			isInside = t.Inside || local != nil && local.granted
		}
		if isInside {
			state.State = serializer.StateInside
		}
		if local != nil {
			local.describeLocked(&state, now)
		}
		q.Add(state, t.rule())
	}
	return q
}

// admitted returns how many tickets of a queue may be inside. They are the first ones.
func admitted(tickets []listedTicket) int {
	var q queue.Queue[*ticket]
	for _, t := range tickets {
		q.InsertBefore(&ticket{Item: queue.Item[*ticket]{Rule: t.rule()}}, nil)
	}
	for q.Admit() != nil {
	}
	return q.Inside()
}

// state describes a waiter, as its owner does.
func (t listedTicket) state() serializer.TicketState {
	return serializer.TicketState{
		Token:   strconv.FormatInt(t.CreateRevision, 10),
		State:   serializer.StateWaiting,
		Since:   t.Since,
		Arrived: t.Since,
		Client:  t.Client,
		Owner:   t.Owner,
		Alive:   new(t.Lease != 0), // the key ends with its owner's lease
	}
}

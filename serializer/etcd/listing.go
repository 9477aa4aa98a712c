package etcd

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/orderly-http/caddy-orderly/serializer"
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
	for _, kv := range found.Responses[0].GetResponseRange().Kvs {
		if queue, ok := e.keys.paused(string(kv.Key)); ok {
			if p, err := parsePause(kv.Value); err == nil {
				ends[queue] = p.Until
				if tickets[queue] == nil {
					tickets[queue] = []*mvccpb.KeyValue{} // it is listed without tickets, too
				}
			}
			continue
		}
		if strings.HasPrefix(string(kv.Key), string(e.keys)+service) {
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

// state describes one queue.
func (s *session) state(queue string, tickets []*mvccpb.KeyValue, ends map[string]time.Time) serializer.QueueState {
	slices.SortFunc(tickets, func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.CreateRevision, b.CreateRevision) })
	e := s.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	q := serializer.QueueState{Path: e.Path(), Prefix: queue, Tickets: []serializer.TicketState{}}
	var groups []string
	for _, kv := range tickets {
		groups = append(groups, parseRecord(kv.Value).Group)
	}
	for _, group := range groups {
		if group != "" && !slices.Contains(q.Groups, group) {
			q.Groups = append(q.Groups, group)
		}
	}
	if end := pauseEnd(queue, groups, func(name string) time.Time { return ends[name] }); !end.IsZero() {
		q.PausedUntil = &end
	}
	shared, open := 0, true
	for _, kv := range tickets {
		if _, left := s.leaving[string(kv.Key)]; left {
			continue
		}
		r := parseRecord(kv.Value)
		t := serializer.TicketState{
			Token:   strconv.FormatInt(kv.CreateRevision, 10),
			State:   serializer.StateWaiting,
			Since:   r.Since,
			Arrived: r.Since,
			Client:  r.Client,
			Owner:   r.Owner,
			Alive:   new(kv.Lease != 0), // the key ends with its owner's lease
		}
		w := s.tickets[string(kv.Key)]
		open = open && r.rule().Admits(q.Inside, shared)
		isInside := open
		if q.PausedUntil != nil {
			isInside = r.Inside || w != nil && w.granted
		}
		if isInside {
			t.State = serializer.StateInside
			if r.Shared {
				shared++
			}
		}
		if w != nil {
			w.describe(&t, e.now())
		}
		q.Add(t, r.rule())
	}
	return q
}

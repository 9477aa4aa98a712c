package etcd

import (
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// The position is how many were ahead on arrival. A read of the queue may show a
// ticket before the answer to its request comes. Bug: if a caller ahead left
// between the two, the position was counted again, without that caller.
func TestPositionWhereReadOvertakesAnswer(t *testing.T) {
	q := testQueue()
	s := q.session
	waiter := s.newTicketLocked(serializer.Arrival{Queue: "q", MaxWaiting: 5})
	waiter.snapshot = true
	q.making++
	var tickets []*mvccpb.KeyValue
	for slot, rev := range []int64{3, 5} {
		tickets = append(tickets, &mvccpb.KeyValue{Key: []byte(s.engine.keys.ticket("q", 2, uint64(slot+1))), CreateRevision: rev})
	}
	tickets = append(tickets, &mvccpb.KeyValue{Key: []byte(waiter.key), CreateRevision: 7})
	q.applyLocked(tickets, 8)
	q.heardLocked(string(tickets[0].Key), 9)
	s.taken(waiter, &pb.TxnResponse{
		Header:    &pb.ResponseHeader{Revision: 7},
		Succeeded: true,
		Responses: []*pb.ResponseOp{
			{Response: &pb.ResponseOp_ResponsePut{ResponsePut: new(pb.PutResponse)}},
			{Response: &pb.ResponseOp_ResponseRange{ResponseRange: &pb.RangeResponse{Kvs: tickets, Count: 3}}},
		},
	})
	if waiter.position != 2 || waiter.granted || waiter.refused {
		t.Errorf("position %d, granted %t, refused %t; expected 2, waiting", waiter.position, waiter.granted, waiter.refused)
	}
}

// A caller that has left and comes again sends one request, for both the deletion
// and the ticket. The request reads the queue after the deletion: the deleted ticket
// would otherwise be deleted once more.
func TestTicketCarriesDeletions(t *testing.T) {
	e, s, _ := suspendedSession(t)
	s.deleters = maxDeleters // nobody else sends them
	t1 := s.waiter()
	q := t1.queue
	e.mu.Lock()
	defer e.mu.Unlock()
	t1.queue.advanceLocked()
	s.dropLocked(t1)
	again := s.newTicketLocked(serializer.Arrival{Queue: "q"})
	carried := s.carriedLocked()
	if len(carried) != 1 || carried[0].key != t1.key || !carried[0].left || len(s.deletions) != 0 {
		t.Fatalf("carries %+v, and leaves %+v", carried, s.deletions)
	}
	txn := s.ticketRequest(again, carried)
	for name, ops := range map[string][]*pb.RequestOp{"success": txn.Success, "failure": txn.Failure} {
		if len(ops) != 3 || ops[1].GetRequestTxn() == nil || ops[2].GetRequestRange() == nil {
			t.Errorf("%s: %v; expected the ticket, the deletion, and a read of the queue", name, ops)
		}
	}
	s.deleteLocked(deletion{key: "o/!left/q/1-", end: "o/!left/q/1."})
	s.deleteLocked(deletion{queue: q, key: "o/q/1-9", rev: 5})
	if carried := s.carriedLocked(); carried != nil {
		t.Errorf("carries %+v: a range", carried)
	}
}

// Bug: the answer to a request for a ticket was lost, and a read showed the ticket.
// Its caller entered and left. The repeated request then made the ticket again, and
// the next caller waited for a second, until a read found it.
func TestTicketKnownBeforeRepetition(t *testing.T) {
	e, s, _ := suspendedSession(t) // etcd does not answer
	e.mu.Lock()
	q := s.queueLocked("q")
	waiter := s.newTicketLocked(serializer.Arrival{Queue: "q"})
	q.making++
	e.mu.Unlock()
	done := make(chan struct{})
	go func() {
		s.take(waiter, nil)
		close(done)
	}()
	e.mu.Lock()
	q.applyLocked([]*mvccpb.KeyValue{{Key: []byte(waiter.key), CreateRevision: 7}}, 7)
	e.mu.Unlock()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("the request is sent again and again, for a ticket that is known")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if q.making != 0 || waiter.refused {
		t.Errorf("making %d, refused %t", q.making, waiter.refused)
	}
}

// As above, but the repeated request was already in flight.
func TestTicketMadeAgain(t *testing.T) {
	q := testQueue()
	s := q.session
	s.deleters = maxDeleters // nobody sends what this test looks at
	waiter := s.newTicketLocked(serializer.Arrival{Queue: "q"})
	q.making++
	q.applyLocked([]*mvccpb.KeyValue{{Key: []byte(waiter.key), CreateRevision: 7}}, 7)
	s.dropLocked(waiter)
	s.settleDeletions(s.deletions, 8)
	s.deletions = nil
	s.taken(waiter, &pb.TxnResponse{
		Header:    &pb.ResponseHeader{Revision: 9},
		Succeeded: true,
		Responses: []*pb.ResponseOp{
			{Response: &pb.ResponseOp_ResponsePut{ResponsePut: new(pb.PutResponse)}},
			{Response: &pb.ResponseOp_ResponseRange{ResponseRange: &pb.RangeResponse{Count: 1}}},
		},
	})
	if len(s.deletions) != 1 || s.deletions[0].key != waiter.key || s.deletions[0].rev != 9 {
		t.Errorf("deletes %+v; expected the ticket that was made again", s.deletions)
	}
}

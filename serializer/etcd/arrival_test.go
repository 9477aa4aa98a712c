package etcd

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// The position is how many were ahead on arrival. A read of the queue may show a
// ticket before the answer to its request comes. Where somebody had left between
// the two, the position was counted anew, without the one who had left.
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
	q.apply(tickets, 8)
	q.heard(string(tickets[0].Key), 9)
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

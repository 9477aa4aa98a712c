package etcd

import (
	"context"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// reply is etcd's answer to a transaction.
type reply struct {
	*pb.TxnResponse
	several bool // several members were asked: a silent one may carry out the transaction much later
}

// rev is the revision at which etcd carried out the transaction.
func (r reply) rev() int64 { return r.Header.Revision }

// kvs returns what a read in the transaction has found.
func (r reply) kvs(operation int) []*mvccpb.KeyValue {
	return r.Responses[operation].GetResponseRange().GetKvs()
}

// send sends a transaction, and waits for the answer. etcd may carry it out twice.
func (e *Engine) send(ctx context.Context, wait time.Duration, txn *pb.TxnRequest) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var asked atomic.Int32
	answer, err := ask(ctx, e.cluster, func(ctx context.Context, m *member) (*pb.TxnResponse, error) {
		asked.Add(1)
		return m.commit(ctx, txn)
	})
	return reply{answer, asked.Load() > 1}, err
}

// request sends a transaction that is not repeated.
func (e *Engine) request(ctx context.Context, txn *pb.TxnRequest) (reply, error) {
	return e.send(ctx, longestAttempt, txn)
}

// commit sends a transaction of a session, which is repeated if it fails.
func (s *session) commit(tries int, txn *pb.TxnRequest) (reply, error) {
	least := s.reached()
	if serializable(txn) {
		least = 0 // the member may be behind
	}
	answer, err := s.engine.send(s.ctx, attemptTime(tries), txn)
	if err == nil {
		err = s.checkHistory(answer.Header, least)
	}
	return answer, err
}

// read reads at one revision, which is rev or later. Unless agreed is true, one member
// answers from its own state, which is cheap. If that state is too old, a majority must
// confirm the answer.
func (s *session) read(rev int64, agreed bool, reads ...*pb.RangeRequest) (answer reply, err error) {
	for tries := range 3 {
		agreed = agreed || tries > 0
		txn := new(pb.TxnRequest)
		for _, r := range reads {
			txn.Success = append(txn.Success, get(&pb.RangeRequest{Key: r.Key, RangeEnd: r.RangeEnd, KeysOnly: r.KeysOnly, Serializable: !agreed}))
		}
		answer, err = s.commit(tries, txn)
		switch {
		case err != nil:
		case answer.rev() >= rev:
			return answer, nil
		case agreed: // although etcd has reported rev
			return answer, s.checkHistory(answer.Header, rev)
		}
	}
	return answer, err
}

const retryPause = 100 * time.Millisecond

// attemptTime is how long to wait for the cluster's answer before a request is repeated.
func attemptTime(tries int) time.Duration { return time.Second << min(tries/3, 2) }

// longestAttempt is how long a request may take if it is not repeated.
const longestAttempt = 5 * time.Second

// sleep waits for d, or until ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

package etcd

import (
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// doubtTime is how long etcd may still carry out a request that had no answer,
// even after its repetition was answered and undone. Until then the queue is
// read for tickets of ours that no caller waits for.
const doubtTime = time.Minute

// arrive requests a ticket. It fails only where none can come of that.
func (e *Engine) arrive(s *session, a serializer.Arrival) (*waiter, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, e.storageError("entering", serializer.ErrClosed)
	}
	if s.over {
		return nil, e.storageError("entering", serializer.ErrLost)
	}
	q := s.queueLocked(a.Queue)
	if a.MaxWaiting > 0 && q.waiting >= a.MaxWaiting {
		return nil, serializer.ErrFull
	}
	w := &waiter{arrival: a, session: s, queue: q, ready: make(chan error, 1), slot: q.slot(), after: s.deleted}
	w.key = e.keys.ticket(a.Queue, s.id, w.slot)
	w.rule = a.Rule
	w.entry.waiter = w
	w.value = newRecord(e.owner, a, e.now())
	w.snapshot = q.empty() || a.MaxWaiting > 0
	s.waiters[w.key] = w
	e.tickets++
	q.making++
	go s.take(w)
	return w, nil
}

// take makes the ticket. It goes on until etcd has confirmed that the key exists:
// only then can the key be deleted for good.
func (s *session) take(w *waiter) {
	for tries := 0; ; tries++ {
		answer, err := s.commit(tries, s.ticket(w))
		s.noteDenial(err)
		if err == nil {
			s.taken(w, answer)
			return
		}
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			s.lose(err)
		}
		if s.ctx.Err() != nil || !s.retry(w, err) {
			s.notTaken(w, err)
			return
		}
		sleep(s.ctx, retryPause)
	}
}

// ticket is the request for a ticket. It makes the key only if there is none, so
// it can be sent again when the answer was lost: the ticket is the same, and so
// is its place in the queue.
func (s *session) ticket(w *waiter) *pb.TxnRequest {
	look := allOf(w.queue.prefix)
	look.CountOnly = !w.snapshot
	return &pb.TxnRequest{
		Compare: []*pb.Compare{createdAt(w.key, 0)},
		Success: []*pb.RequestOp{put(w.key, w.value, s.id), get(look)},
		Failure: []*pb.RequestOp{get(keyOf(w.key)), get(look)},
	}
}

// retry reports whether to send a failed request again, and notes that etcd may
// have carried it out.
func (s *session) retry(w *waiter, err error) bool {
	e := s.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	w.queue.doubt = time.Now().Add(doubtTime)
	w.doubtful = true
	return (transient(err) || denied(err)) && !w.refused
}

// notTaken gives up the request for a ticket.
func (s *session) notTaken(w *waiter, err error) {
	e := s.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	w.queue.making--
	if !w.joined {
		w.refuse(e.storageError("taking a ticket from etcd", err))
		s.dropLocked(w)
	}
}

// taken lists the ticket.
func (s *session) taken(w *waiter, answer *pb.TxnResponse) {
	e, q := s.engine, w.queue
	rev, look := readAnswer(answer)
	e.mu.Lock()
	defer e.mu.Unlock()
	q.making--
	if s.over {
		return
	}
	if !w.joined && !w.refused {
		q.join(w, rev)
		w.position = max(int(look.Count)-1, 0)
	}
	if w.snapshot {
		q.apply(look.Kvs, answer.Header.Revision)
		if w.joined && !w.granted && s.waiters[w.key] == w {
			w.position = q.ahead(&w.entry)
		}
	}
	if w.refused {
		s.dropLocked(w)
		return
	}
	q.update()
	if w.full() {
		w.refuse(serializer.ErrFull)
		s.dropLocked(w)
	}
}

// full reports whether too many wait before w.
func (w *waiter) full() bool {
	return w.arrival.MaxWaiting > 0 && !w.admitted && w.position-w.queue.admitted >= w.arrival.MaxWaiting
}

// readAnswer finds the ticket's revision and what was read of the queue.
func readAnswer(answer *pb.TxnResponse) (rev int64, look *pb.RangeResponse) {
	look = answer.Responses[1].GetResponseRange()
	if answer.Succeeded {
		return answer.Header.Revision, look
	}
	return firstOf(answer.Responses[0].GetResponseRange().Kvs).CreateRevision, look
}

func (e *Engine) storageError(op string, err error) error {
	return &serializer.StorageError{Op: op, Path: e.where, Err: err}
}

// evictionError names the ticket that was to be evicted.
func evictionError(queue string, token uint64, err error) error {
	return fmt.Errorf("evicting ticket %d from queue %q: %w", token, queue, err)
}

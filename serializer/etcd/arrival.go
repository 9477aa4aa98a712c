package etcd

import (
	"errors"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// doubtTime is how long etcd may take to carry out a request that was not answered. That
// may happen even after the effect of its repetition, or of another member's answer, was
// undone. Until then, the engine searches the queue for local tickets without a caller.
const doubtTime = time.Minute

// arrive requests a ticket. It returns an error only if no ticket can result.
func (e *Engine) arrive(s *session, a serializer.Arrival) (*ticket, error) {
	value := newRecord(e.owner, a, e.now())
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, e.storageError("entering", serializer.ErrClosed)
	}
	if s.over {
		return nil, e.storageError("entering", serializer.ErrLost)
	}
	q := s.queueLocked(a.Queue)
	q.noteGroupLocked(a.Group)
	if a.MaxWaiting > 0 && !a.DropOldest && q.LocalWaiting() >= a.MaxWaiting {
		return nil, serializer.ErrFull
	}
	snapshot := q.emptyLocked() || a.MaxWaiting > 0
	t := s.newTicketLocked(a)
	t.value, t.snapshot = value, snapshot
	q.making++
	go s.take(t, s.carriedLocked())
	return t, nil
}

// take makes the ticket. It keeps trying until etcd has confirmed that the key exists, or
// a read has shown it. Only then can the key be deleted for good. If the first request
// fails, the deletions that it carries are sent separately.
func (s *session) take(t *ticket, carried []deletion) {
	for tries := 0; ; tries++ {
		answer, err := s.commit(tries, s.ticketRequest(t, carried))
		s.noteDenial(err)
		if answer.several || err != nil {
			s.noteDoubt(t)
		}
		if err == nil {
			s.settleDeletions(carried, answer.rev())
			s.taken(t, answer.TxnResponse)
			return
		}
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			s.lose(err)
		}
		alone := len(carried) == 0
		s.sendAgain(carried)
		carried = nil
		if s.ctx.Err() != nil || !s.retry(t, err, alone) || s.knownSoon(t) {
			s.notTaken(t, err)
			return
		}
	}
}

// knownSoon waits before a request is repeated, and reports whether a read has shown the
// ticket. If so, the ticket may already have been used and deleted, and another request
// would make it again.
func (s *session) knownSoon(t *ticket) bool {
	sleep(s.ctx, retryPause)
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	return t.joined
}

// ticketRequest is the request for a ticket. It makes the key only if there is none. So
// if the answer is lost, the request can be repeated: the ticket is the same, and so is
// its place in the queue. It also deletes the carried keys, and then reads the queue.
func (s *session) ticketRequest(t *ticket, carried []deletion) *pb.TxnRequest {
	read := allOf(t.queue.prefix)
	read.CountOnly = !t.snapshot
	var rest []*pb.RequestOp
	for _, d := range carried {
		rest = append(rest, within(s.deletion(d, withMarks)))
	}
	rest = append(rest, get(read))
	return &pb.TxnRequest{
		Compare: []*pb.Compare{createdAt(t.key, 0)},
		Success: slices.Concat([]*pb.RequestOp{put(t.key, t.value, s.id)}, rest),
		Failure: slices.Concat([]*pb.RequestOp{get(keyOf(t.key))}, rest),
	}
}

// noteDoubt notes that etcd may carry out a request for a ticket later.
func (s *session) noteDoubt(t *ticket) {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	t.queue.doubt = time.Now().Add(doubtTime)
	t.doubtful = true
}

// retry reports whether to repeat a failed request. If the request carried deletions,
// etcd may have refused those instead of the ticket.
func (s *session) retry(t *ticket, err error, alone bool) bool {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	return (!alone || transient(err) || denied(err)) && !t.refused
}

// notTaken gives up the request for a ticket.
func (s *session) notTaken(t *ticket, err error) {
	e := s.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	t.queue.making--
	if !t.joined {
		t.refuseLocked(e.storageError("taking a ticket from etcd", err))
		s.dropLocked(t)
	}
}

// taken adds the ticket to its queue.
func (s *session) taken(t *ticket, answer *pb.TxnResponse) {
	e, q := s.engine, t.queue
	rev, found := readAnswer(answer)
	e.mu.Lock()
	defer e.mu.Unlock()
	q.making--
	if s.over {
		return
	}
	overtaken := t.joined // a read of the queue came first: the position is known
	if overtaken && rev != t.rev {
		// The ticket was used and deleted before this request made it again.
		s.deleteLocked(deletion{queue: q, key: t.key, rev: rev})
	}
	if !overtaken && !t.refused {
		q.joinLocked(t, rev)
		t.position = max(int(found.Count)-1, 0)
	}
	if t.snapshot {
		q.applyLocked(found.Kvs, answer.Header.Revision)
		if t.joined && !overtaken && s.tickets[t.key] == t {
			t.position = q.aheadLocked(t)
		}
	}
	if t.refused {
		s.dropLocked(t)
		return
	}
	q.advanceLocked()
	if t.fullLocked() {
		s.rejectLocked(t, serializer.ErrFull)
		return
	}
	q.updateLocked()
}

// fullLocked reports whether too many are waiting ahead of a ticket.
func (t *ticket) fullLocked() bool {
	if t.arrival.MaxWaiting == 0 || t.arrival.DropOldest || t.Admitted() || t.vanished {
		return false
	}
	return t.queue.aheadLocked(t)-t.queue.Inside() >= t.arrival.MaxWaiting
}

// readAnswer extracts the ticket's revision and what was read of the queue.
func readAnswer(answer *pb.TxnResponse) (rev int64, found *pb.RangeResponse) {
	found = answer.Responses[len(answer.Responses)-1].GetResponseRange()
	if answer.Succeeded {
		return answer.Header.Revision, found
	}
	return firstOf(answer.Responses[0].GetResponseRange().Kvs).CreateRevision, found
}

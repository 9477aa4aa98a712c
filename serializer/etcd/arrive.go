package etcd

import (
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// doubtTime is how long a request without an answer may still be carried out,
// after another like it was answered and undone. Until then the queue is looked
// at for tickets that are ours and nobody's.
const doubtTime = time.Minute

// arrive asks for a ticket. It fails only where that is sure to be in vain.
func (e *Engine) arrive(s *session, a serializer.Arrival) (*place, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, e.storageError("entering", serializer.ErrClosed)
	}
	if s.over {
		return nil, e.storageError("entering", serializer.ErrLost)
	}
	l := s.line(a.Queue)
	if a.MaxWaiting > 0 && l.waiting >= a.MaxWaiting {
		return nil, serializer.ErrFull
	}
	p := &place{arrival: a, session: s, line: l, ready: make(chan error, 1), slot: l.slot(), after: s.deleted}
	p.key = e.keys.ticket(a.Queue, s.id, p.slot)
	p.rule = a.Rule
	p.entry.place = p
	p.value = newRecord(e.owner, a, e.now())
	p.survey = l.empty() || a.MaxWaiting > 0
	s.places[p.key] = p
	e.tickets++
	l.making++
	go s.take(p)
	return p, nil
}

// take makes the ticket. It goes on until etcd has said that the key exists:
// only then it is known that the key can be deleted for good.
func (s *session) take(p *place) {
	for tries := 0; ; tries++ {
		answer, err := s.commit(tries, s.ticket(p))
		s.noteDenial(err)
		if err == nil {
			s.taken(p, answer)
			return
		}
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			s.lose(err)
		}
		if s.ctx.Err() != nil || !s.retry(p, err) {
			s.notTaken(p, err)
			return
		}
		sleep(s.ctx, retryPause)
	}
}

// ticket asks for the ticket. The key is made only if it is not there, so a
// request whose answer was lost can be sent again: the ticket is the same, and
// so is its place in the queue.
func (s *session) ticket(p *place) *pb.TxnRequest {
	look := allOf(p.line.prefix)
	look.CountOnly = !p.survey
	return &pb.TxnRequest{
		Compare: []*pb.Compare{createdAt(p.key, 0)},
		Success: []*pb.RequestOp{put(p.key, p.value, s.id), get(look)},
		Failure: []*pb.RequestOp{get(keyOf(p.key)), get(look)},
	}
}

// retry reports whether a failed request may be sent again, and notes that it
// may have been carried out.
func (s *session) retry(p *place, err error) bool {
	e := s.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	p.line.doubt = time.Now().Add(doubtTime)
	p.doubtful = true
	return (transient(err) || denied(err)) && !p.refused
}

// notTaken gives up asking.
func (s *session) notTaken(p *place, err error) {
	e := s.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	p.line.making--
	if !p.joined {
		p.refuse(e.storageError("taking a ticket from etcd", err))
		s.drop(p)
	}
}

// taken puts the ticket into the line.
func (s *session) taken(p *place, answer *pb.TxnResponse) {
	e, l := s.engine, p.line
	rev, look := readAnswer(answer)
	e.mu.Lock()
	defer e.mu.Unlock()
	l.making--
	if s.over {
		return
	}
	if !p.joined && !p.refused {
		l.join(p, rev)
		p.position = max(int(look.Count)-1, 0)
	}
	if p.survey {
		l.apply(look.Kvs, answer.Header.Revision)
		if p.joined && !p.granted && s.places[p.key] == p {
			p.position = l.ahead(&p.entry)
		}
	}
	if p.refused {
		s.drop(p)
		return
	}
	l.update()
	if p.full() {
		p.refuse(serializer.ErrFull)
		s.drop(p)
	}
}

// full reports whether too many wait before p.
func (p *place) full() bool {
	return p.arrival.MaxWaiting > 0 && !p.admitted && p.position-p.line.admitted >= p.arrival.MaxWaiting
}

// readAnswer finds the revision of the ticket and the look at the queue.
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

// evictionError says what Evict was doing.
func evictionError(queue string, token uint64, err error) error {
	return fmt.Errorf("evicting ticket %d from queue %q: %w", token, queue, err)
}

package etcd

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// knownPause is what a session knows about a pause.
type knownPause struct {
	until time.Time     // as announced; zero if there is no pause
	end   time.Duration // by the engine's clock; 0 if the pause does not end, or this process is ending it
	rev   int64         // of the change
}

// readPauses reads all pauses, before the session issues tickets.
func (s *session) readPauses(ctx context.Context) error {
	found, err := s.engine.request(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{get(allOf(string(s.engine.keys) + pauses))}})
	if err != nil {
		return fmt.Errorf("reading pauses from etcd: %w", err)
	}
	s.takePauses(found.kvs(0), found.rev())
	return nil
}

// takePauses applies a read of all pauses.
func (s *session) takePauses(kvs []*mvccpb.KeyValue, rev int64) {
	found := make(map[string]knownPause)
	for _, kv := range kvs {
		if queue, ok := s.engine.keys.paused(string(kv.Key)); ok {
			found[queue] = s.readPause(kv)
		}
	}
	s.engine.mu.Lock()
	for queue := range s.pauses {
		if _, ok := found[queue]; !ok {
			found[queue] = knownPause{rev: rev}
		}
	}
	s.engine.mu.Unlock()
	s.learnPauses(found)
}

// servePauses keeps the session's pauses in step with etcd until the session is over.
func (s *session) servePauses() {
	s.follow(keyRange{
		what:   "pauses",
		prefix: string(s.engine.keys) + pauses,
		events: s.handlePauses,
		found:  s.takePauses,
	})
}

func (s *session) handlePauses(events []*mvccpb.Event) {
	changes := make(map[string]knownPause)
	for _, event := range events {
		queue, ok := s.engine.keys.paused(string(event.Kv.Key))
		switch {
		case !ok:
		case event.Type == mvccpb.Event_PUT:
			changes[queue] = s.readPause(event.Kv)
		default:
			changes[queue] = knownPause{rev: event.Kv.ModRevision}
		}
	}
	s.learnPauses(changes)
}

// readPause reads the value of a pause's key.
func (s *session) readPause(kv *mvccpb.KeyValue) knownPause {
	p, err := parsePause(kv.Value)
	if err != nil {
		s.engine.log.Error("a pause in etcd cannot be read", "key", string(kv.Key), "error", err)
	}
	known := knownPause{until: p.Until, rev: kv.ModRevision}
	if length := p.length(); length > 0 {
		known.end = s.engine.clock() + length
	}
	return known
}

// learnPauses notes changes of pauses, unless the same or later ones are known. Then it
// pauses and resumes queues.
func (s *session) learnPauses(changes map[string]knownPause) {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	if s.over {
		return
	}
	for queue, p := range changes {
		if known, ok := s.pauses[queue]; !ok || known.rev < p.rev {
			s.pauses[queue] = p
		}
	}
	for _, q := range s.queues {
		q.applyPauseLocked()
	}
	s.endPausesLocked()
}

// endPausesLocked deletes the pauses that are over, and sets a timer for the next. The
// queues stay paused until the key is gone.
func (s *session) endPausesLocked() {
	if s.unpause != nil {
		s.unpause.Stop()
		s.unpause = nil
	}
	now, next := s.engine.clock(), time.Duration(math.MaxInt64)
	for queue, p := range s.pauses {
		switch {
		case p.end == 0:
		case p.end <= now:
			p.end = 0
			s.pauses[queue] = p
			go s.deletePause(queue, p.rev)
		case p.end < next:
			next = p.end
		}
	}
	if next < math.MaxInt64 {
		s.unpause = time.AfterFunc(next-now, s.endPauses)
	}
}

func (s *session) endPauses() {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	if !s.over {
		s.endPausesLocked()
	}
}

// deletePause deletes a pause that is over, unless somebody has changed it. If it fails
// for good, the pause's lease ends it.
func (s *session) deletePause(queue string, rev int64) {
	key := s.engine.keys.pause(queue)
	for tries := 0; s.ctx.Err() == nil; tries++ {
		_, err := s.commit(tries, &pb.TxnRequest{
			Compare: []*pb.Compare{{
				Key: []byte(key), Target: pb.Compare_MOD, Result: pb.Compare_EQUAL,
				TargetUnion: &pb.Compare_ModRevision{ModRevision: rev},
			}},
			Success: []*pb.RequestOp{erase(key, "")},
		})
		if err == nil || s.ctx.Err() != nil {
			return
		}
		s.complain(queue, fmt.Errorf("deleting a pause that is over: %w", err))
		if !transient(err) {
			return
		}
		sleep(s.ctx, retryPause)
	}
}

// pauseEnd returns the announced end of the last pause of a queue and its groups; zero if
// there is none.
func pauseEnd(queue string, groups []string, endOf func(name string) time.Time) time.Time {
	end := endOf(queue)
	for _, group := range groups {
		if of := endOf(group); of.After(end) {
			end = of
		}
	}
	return end
}

// noteGroupLocked notes the group of an arrival.
func (q *ticketQueue) noteGroupLocked(group string) {
	if group != "" && !slices.Contains(q.groups, group) {
		q.groups = append(q.groups, group)
		q.setPauseLocked()
	}
}

func (q *ticketQueue) setPauseLocked() {
	end := pauseEnd(q.name, q.groups, func(name string) time.Time { return q.session.pauses[name].until })
	q.SetPaused(!end.IsZero())
}

// applyPauseLocked admits waiters if the pause is over. Otherwise, it writes for other
// processes which local tickets are inside.
func (q *ticketQueue) applyPauseLocked() {
	q.setPauseLocked()
	if !q.Paused() {
		q.updateLocked()
		return
	}
	for t := range q.All() {
		if t.Local() && t.granted && !t.told {
			t.told = true
			go q.session.tellInside(t)
		}
	}
	if q.stale == 0 && q.Remote() > 0 {
		q.stale = q.covered // so that the queue is read again: other processes write the same
	}
	q.updateLocked()
}

// passInsideLocked moves the border of a paused queue past the remote tickets that are inside.
func (q *ticketQueue) passInsideLocked() {
	for t := q.Border(); q.Paused() && t != nil && !t.Local() && t.inside; t = q.Border() {
		q.Pass()
	}
}

// tellInside writes into a ticket's key that the ticket is inside.
func (s *session) tellInside(t *ticket) {
	r := parseRecord([]byte(t.value))
	r.Inside = true
	for tries := 0; s.ctx.Err() == nil; tries++ {
		_, err := s.commit(tries, &pb.TxnRequest{
			Compare: []*pb.Compare{createdAt(t.key, t.rev)},
			Success: []*pb.RequestOp{put(t.key, r.text(), s.id)},
		})
		if err == nil || !transient(err) && !denied(err) || t.left.Load() {
			return
		}
		sleep(s.ctx, retryPause)
	}
}

package etcd

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// A pause is a key without a lease, so it applies whichever processes come and go. Every
// session reads the pauses before it issues tickets, and watches them. Any process that
// finds a pause that is over deletes it.
//
// While a queue is paused, order and rules do not show who is inside. So each process
// that learns of the pause writes that into the keys of its own holders, for the lists of
// the other processes.

// pause is the value of a pause's key.
type pause struct {
	Until time.Time `json:"until"`
	Owner string    `json:"owner"` // the process that made it, for people
}

// knownPause is what a session knows about a pause. If it has no end, it was deleted.
type knownPause struct {
	end time.Time
	rev int64 // of the change
}

// pause returns the key of a queue's or a group's pause.
func (n keyspace) pause(queue string) string { return string(n) + pauses + url.PathEscape(queue) }

// paused returns the queue or the group that a pause's key names.
func (n keyspace) paused(key string) (queue string, ok bool) {
	escaped, ok := strings.CutPrefix(key, string(n)+pauses)
	queue, err := url.PathUnescape(escaped)
	return queue, ok && err == nil
}

// parsePause parses a pause. An unreadable one pauses nothing, because nobody could say
// when it ends.
func parsePause(value []byte) (end time.Time, err error) {
	var p pause
	if err := json.Unmarshal(value, &p); err != nil {
		return end, fmt.Errorf("reading a pause, which pauses nothing until it is corrected: %w", err)
	}
	return p.Until.UTC(), nil
}

// pauseGrace is how long others may take to learn of a pause, and to write who is inside.
const pauseGrace = 300 * time.Millisecond

// Pause implements [serializer.Pauser]. It returns when this process obeys, and others
// that etcd reaches have had time to notice.
func (e *Engine) Pause(ctx context.Context, queue string, until time.Time) error {
	end, err := serializer.PauseEnd(queue, until)
	if err != nil {
		return err
	}
	value, err := json.Marshal(pause{Until: end, Owner: e.owner})
	if err == nil {
		err = e.changePause(ctx, queue, end, put(e.keys.pause(queue), string(value), 0))
	}
	if err != nil {
		return fmt.Errorf("pausing queue %q: %w", queue, err)
	}
	select {
	case <-time.After(pauseGrace):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Resume implements [serializer.Pauser].
func (e *Engine) Resume(ctx context.Context, queue string) error {
	if err := e.changePause(ctx, queue, time.Time{}, erase(e.keys.pause(queue), "")); err != nil {
		return fmt.Errorf("resuming queue %q: %w", queue, err)
	}
	return nil
}

// changePause changes a pause in etcd, and obeys at once.
func (e *Engine) changePause(ctx context.Context, queue string, end time.Time, change *pb.RequestOp) error {
	s, err := e.current(ctx)
	if err != nil {
		return err
	}
	answer, err := e.request(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{change}})
	if err != nil {
		return e.storageError("changing a pause in", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s.notePauseLocked(queue, knownPause{end, answer.Header.Revision})
	s.applyPausesLocked()
	return nil
}

// readPauses reads all pauses, before the session issues tickets.
func (s *session) readPauses(ctx context.Context) error {
	found, err := s.engine.request(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{get(allOf(string(s.engine.keys) + pauses))}})
	if err != nil {
		return fmt.Errorf("reading pauses from etcd: %w", err)
	}
	s.takePauses(found.Responses[0].GetResponseRange().Kvs, found.Header.Revision)
	return nil
}

// takePauses applies a read of all pauses.
func (s *session) takePauses(kvs []*mvccpb.KeyValue, rev int64) {
	e := s.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	for queue := range s.pauses {
		s.notePauseLocked(queue, knownPause{rev: rev}) // unless the read shows it
	}
	for _, kv := range kvs {
		s.notePauseOfLocked(kv)
	}
	s.applyPausesLocked()
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
	e := s.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range events {
		if event.Type == mvccpb.Event_PUT {
			s.notePauseOfLocked(event.Kv)
		} else if queue, ok := e.keys.paused(string(event.Kv.Key)); ok {
			s.notePauseLocked(queue, knownPause{rev: event.Kv.ModRevision})
		}
	}
	s.applyPausesLocked()
}

// notePauseOfLocked notes a pause's key.
func (s *session) notePauseOfLocked(kv *mvccpb.KeyValue) {
	queue, ok := s.engine.keys.paused(string(kv.Key))
	if !ok {
		return
	}
	end, err := parsePause(kv.Value)
	if err != nil {
		s.engine.log.Error("a pause in etcd cannot be read", "key", string(kv.Key), "error", err)
	}
	s.notePauseLocked(queue, knownPause{end, kv.ModRevision})
}

// notePauseLocked notes a change of a pause, unless a later change is known.
func (s *session) notePauseLocked(queue string, p knownPause) {
	known, ok := s.pauses[queue]
	if s.over || ok && known.rev > p.rev {
		return
	}
	s.pauses[queue] = p
}

// applyPausesLocked pauses and resumes queues, and deletes pauses that are over.
func (s *session) applyPausesLocked() {
	if s.over {
		return
	}
	now, next := time.Now(), serializer.Resumed
	for queue, p := range s.pauses {
		switch {
		case p.end.IsZero():
		case !p.end.After(now):
			s.pauses[queue] = knownPause{rev: p.rev}
			go s.deletePause(queue, p.rev)
		case p.end.Before(next):
			next = p.end
		}
	}
	for _, q := range s.queues {
		q.applyPause()
	}
	if s.unpause != nil {
		s.unpause.Stop()
		s.unpause = nil
	}
	if next.Before(serializer.Resumed) {
		s.unpause = time.AfterFunc(time.Until(next), func() {
			s.engine.mu.Lock()
			defer s.engine.mu.Unlock()
			s.applyPausesLocked()
		})
	}
}

// deletePause deletes a pause that is over, unless somebody has changed it.
func (s *session) deletePause(queue string, rev int64) {
	key := s.engine.keys.pause(queue)
	_, err := s.commit(0, &pb.TxnRequest{
		Compare: []*pb.Compare{{
			Key: []byte(key), Target: pb.Compare_MOD, Result: pb.Compare_EQUAL,
			TargetUnion: &pb.Compare_ModRevision{ModRevision: rev},
		}},
		Success: []*pb.RequestOp{erase(key, "")},
	})
	if err != nil && s.ctx.Err() == nil {
		s.complain(queue, fmt.Errorf("deleting a pause that is over: %w", err)) // another process or the next session will delete it
	}
}

// pauseEnd returns when the last pause of a queue and its groups ends; zero if there is
// none.
func pauseEnd(queue string, groups []string, endOf func(name string) time.Time) time.Time {
	end := endOf(queue)
	for _, group := range groups {
		if of := endOf(group); of.After(end) {
			end = of
		}
	}
	return end
}

// noteGroup notes the group of an arrival.
func (q *ticketQueue) noteGroup(group string) {
	if group != "" && !slices.Contains(q.groups, group) {
		q.groups = append(q.groups, group)
		q.setPause()
	}
}

func (q *ticketQueue) setPause() {
	end := pauseEnd(q.name, q.groups, func(name string) time.Time { return q.session.pauses[name].end })
	q.SetPaused(!end.IsZero())
}

// applyPause admits waiters if the pause is over. Otherwise, it writes for other
// processes which local tickets are inside.
func (q *ticketQueue) applyPause() {
	q.setPause()
	if !q.Paused() {
		q.update()
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
	q.update()
}

// passInside moves the border of a paused queue past the remote tickets that are inside.
func (q *ticketQueue) passInside() {
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

// Interface guard
var _ serializer.Pauser = (*Engine)(nil)

package etcd

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

const (
	checkInterval = time.Second      // between reads that verify what the watches have reported
	lingerTime    = 10 * time.Second // how long an empty queue is kept with its watches
	maxVerify     = 64               // the most tickets that are read one by one
	longQueue     = 256              // in tickets; reading that many costs more than reading a few keys
	maxTargets    = 4                // the most targets watched at a time; one of them is needed
)

// watcher keeps a queue in step with etcd. It watches the tickets for which the first
// local waiter waits, and reads the queue if more must be known. An event moves the
// border at once, in the feed that delivers it.
//
// It continues to watch the last few keys. Keys are reused, and if a few processes take
// turns, the key ahead is often the same. Then a hand-over needs no new watch.
type watcher struct {
	*ticketQueue
	ours   *target   // deletions of local tickets
	ahead  []*target // the most recently needed first
	failed int       // attempts to watch that failed in a row
}

// target is a watched key: a mark, or a prefix of tickets.
type target struct {
	key      string
	arrivals bool // new tickets are reported, too
	watch    *watch
	lost     atomic.Bool
}

// task is what a queue currently needs from etcd.
type task struct {
	sync     bool   // read the queue
	target   string // to be watched
	arrivals bool   // the target must report new tickets, too
	retire   bool   // end: the queue is no longer in use
	check    bool   // read the queue regularly, in case a watch has failed
	rev      int64  // the revision that a read must have reached
}

// follow runs from the first ticket of a queue until the queue is forgotten.
func (q *ticketQueue) follow() {
	w := &watcher{ticketQueue: q}
	defer w.stop()
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	for q.session.ctx.Err() == nil {
		t := q.task()
		if t.retire {
			return
		}
		acted, err := w.act(t)
		if err != nil {
			q.session.complain(q.name, err)
			sleep(q.session.ctx, retryPause)
			continue
		}
		if acted {
			continue
		}
		select {
		case <-q.changed:
		case <-ticker.C:
			// Other members may know more than the preferred one.
			if t.check {
				err = w.sync(t.rev, true)
			}
		case <-q.session.ctx.Done():
		}
		if err != nil {
			q.session.complain(q.name, err)
		}
	}
}

// stop ends all watches.
func (w *watcher) stop() {
	for _, t := range append(w.ahead, w.ours) {
		if t != nil {
			t.watch.stop()
		}
	}
}

// task finds out what the queue needs now.
func (q *ticketQueue) task() task {
	e := q.session.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	t := task{check: time.Now().Before(q.doubt), rev: max(q.covered, q.stale)}
	if last := q.Last(); last != nil {
		t.rev = max(t.rev, last.rev)
	}
	if q.first == nil {
		t.retire = q.emptyLocked() && q.leaving == 0 && !t.check && time.Since(q.idle) > lingerTime
		if t.retire {
			q.retireLocked()
		}
		// While its watch was interrupted, a holder may have lost its ticket.
		t.sync, t.rev = q.unsure && !q.emptyLocked(), max(t.rev, q.missed)
		return t
	}
	// Up to half of the local waiters may be uncovered. So one read serves many of them,
	// and the next waiter is always covered.
	t.sync = q.unsure || q.stale > 0 || q.first.rev > q.covered || q.uncovered > q.LocalWaiting()-q.uncovered
	t.rev = max(t.rev, q.missed)
	t.target, t.arrivals = q.blockerLocked()
	t.check = t.check || t.target != ""
	return t
}

// retireLocked forgets the queue.
func (q *ticketQueue) retireLocked() {
	delete(q.session.queues, q.name)
	if q.slots > 0 {
		marks := q.session.engine.keys.marks(q.name, q.session.id)
		q.session.deleteLocked(deletion{key: marks, end: prefixEnd(marks)})
	}
}

// blockerLocked returns the key to watch so that the first local waiter enters in time.
// An exclusive waiter enters when all tickets before it have gone, so the mark of the
// last one is enough. Any other waiter may enter when one of many tickets goes. A waiter
// that may be superseded must learn of all arrivals.
func (q *ticketQueue) blockerLocked() (target string, arrivals bool) {
	last := q.blockerOfLocked(q.first)
	switch {
	case q.Bounded():
		return q.prefix, true
	case last == nil:
		return "", false
	case q.first.Rule.Alone():
		return q.session.engine.keys.mark(last.key), false
	default:
		return q.prefix, false
	}
}

// blockerOfLocked returns the last remote ticket before t, or nil. t may be nil.
func (q *ticketQueue) blockerOfLocked(t *ticket) *ticket {
	if t == nil || q.Remote() == 0 {
		return nil
	}
	for t = t.Prev(); t != nil && t.Local(); {
		t = t.Prev()
	}
	return t
}

// act does the first thing that a task needs. It reports whether it did something: the
// task may have changed then.
func (w *watcher) act(t task) (bool, error) {
	if w.ours == nil || w.ours.lost.Load() {
		rev, err := w.watchOurs()
		if err != nil {
			return true, err
		}
		t.rev = max(t.rev, rev)
	}
	switch {
	case t.target != "" && !w.watches(t.target, t.arrivals):
		return true, w.watchTarget(t)
	case t.sync:
		return true, w.sync(t.rev, false)
	}
	return false, nil
}

// start begins to watch a target.
func (w *watcher) start(t *target, request *pb.WatchCreateRequest, handle func([]*mvccpb.Event)) (rev int64, err error) {
	t.watch, rev, err = w.session.watch(w.failed, request, handle, func() {
		t.lost.Store(true)
		w.signal()
	})
	if err != nil {
		w.failed++
		return 0, fmt.Errorf("watching %s: %w", t.key, err)
	}
	w.failed = 0
	return rev, nil
}

// watchOurs watches for deletions of local tickets. After an interruption, the queue must
// be read.
func (w *watcher) watchOurs() (int64, error) {
	prefix := w.session.engine.keys.tickets(w.name, w.session.id)
	again := w.ours != nil
	t := &target{key: prefix}
	rev, err := w.start(t, watchOf(prefix, pb.WatchCreateRequest_NOPUT), w.handleOurs)
	if err != nil {
		return 0, err
	}
	w.ours = t
	if again {
		w.session.engine.mu.Lock()
		defer w.session.engine.mu.Unlock()
		w.unsure, w.missed = true, max(w.missed, rev)
	}
	return rev, nil
}

// watches reports whether a key is watched, and moves its target to the front.
func (w *watcher) watches(key string, arrivals bool) bool {
	w.ahead = slices.DeleteFunc(w.ahead, func(t *target) bool { return t.lost.Load() })
	i := slices.IndexFunc(w.ahead, func(t *target) bool { return t.key == key && (t.arrivals || !arrivals) })
	if i < 0 {
		return false
	}
	needed := w.ahead[i]
	copy(w.ahead[1:i+1], w.ahead[:i])
	w.ahead[0] = needed
	return true
}

// watchTarget watches another target, and then reads the queue. In this order, the watch
// reports the end of every ticket that the read shows.
func (w *watcher) watchTarget(t task) error {
	next := &target{key: t.target, arrivals: t.arrivals}
	request, eachLocked := watchOf(t.target, pb.WatchCreateRequest_NOPUT), w.ticketChangedLocked
	switch {
	case t.target != w.prefix:
		request, eachLocked = &pb.WatchCreateRequest{Key: []byte(t.target)}, w.markChangedLocked
	case t.arrivals:
		request.Filters = nil
	}
	rev, err := w.start(next, request, func(events []*mvccpb.Event) { w.handle(events, eachLocked) })
	if err != nil {
		return err
	}
	if len(w.ahead) == maxTargets {
		w.ahead[maxTargets-1].watch.stop()
		w.ahead = w.ahead[:maxTargets-1]
	}
	w.ahead = slices.Insert(w.ahead, 0, next)
	return w.sync(max(t.rev, rev), false)
}

// handleOurs handles deletions of local tickets.
func (w *watcher) handleOurs(events []*mvccpb.Event) {
	e := w.session.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, event := range events {
		if i == 0 || event.Kv.ModRevision != events[i-1].Kv.ModRevision {
			e.measureLocked(w.session.answered, event.Kv.ModRevision)
		}
		w.heardLocked(string(event.Kv.Key), event.Kv.ModRevision)
	}
	w.updateLocked()
}

// ticketChangedLocked handles the end of a remote ticket, or a new one.
func (w *watcher) ticketChangedLocked(event *mvccpb.Event) {
	if event.Type == mvccpb.Event_PUT {
		w.arrivedLocked(event.Kv)
		return
	}
	w.heardLocked(string(event.Kv.Key), event.Kv.ModRevision)
}

// markChangedLocked handles the mark of a remote ticket.
func (w *watcher) markChangedLocked(event *mvccpb.Event) {
	rev := event.Kv.ModRevision
	m, ok := parseMark(event.Kv.Value)
	switch {
	case event.Type == mvccpb.Event_DELETE || !ok: // its process has ended, or has forgotten the queue
		w.stale = max(w.stale, rev)
	case m.left:
		w.passedLocked(m.rev)
	default:
		w.heardLocked(w.session.engine.keys.marked(string(event.Kv.Key)), rev)
	}
}

// handle handles events about remote tickets. If the ticket just before the first local
// waiter has gone without having been inside, its owner may have given up. The tickets
// before that one may then still exist, and the queue must be read.
func (w *watcher) handle(events []*mvccpb.Event, eachLocked func(*mvccpb.Event)) {
	e := w.session.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	first, before := w.first, w.blockerOfLocked(w.first)
	for _, event := range events {
		eachLocked(event)
	}
	now := w.blockerOfLocked(w.first)
	if now != nil && now != before && w.first == first && first.Rule.Alone() {
		w.stale = max(w.stale, events[len(events)-1].Kv.ModRevision)
	}
	w.updateLocked()
}

// sync reads the queue as of the given revision or later. If agreed is true, a majority
// of the members confirms the answer; otherwise, one member answers from its own state.
func (w *watcher) sync(rev int64, agreed bool) error {
	if doubtful := w.doubtful(); len(doubtful) > 0 {
		err := w.verify(doubtful, rev, agreed)
		if !errors.Is(err, rpctypes.ErrTooManyOps) { // by etcd's --max-txn-ops
			return err
		}
	}
	answer, err := w.session.read(rev, agreed, allOf(w.prefix))
	if err != nil {
		return fmt.Errorf("reading the queue: %w", err)
	}
	w.session.engine.mu.Lock()
	defer w.session.engine.mu.Unlock()
	w.applyLocked(answer.kvs(0), answer.rev())
	w.updateLocked()
	return nil
}

// doubtful returns the remote tickets before the first local waiter, if reading only
// these is enough, and cheaper than reading the whole queue.
func (w *watcher) doubtful() (tickets []*ticket) {
	w.session.engine.mu.Lock()
	defer w.session.engine.mu.Unlock()
	if w.Len() < longQueue || w.unsure || w.first == nil || w.first.rev > w.covered || w.uncovered > w.LocalWaiting()-w.uncovered {
		return nil
	}
	for t := w.first.Prev(); t != nil; t = t.Prev() {
		if t.Local() {
			continue
		}
		if len(tickets) == maxVerify {
			return nil
		}
		tickets = append(tickets, t)
	}
	return tickets
}

// verify reads which of some tickets still exist.
func (w *watcher) verify(tickets []*ticket, rev int64, agreed bool) error {
	reads := make([]*pb.RangeRequest, len(tickets))
	for i, t := range tickets {
		reads[i] = keyOf(t.key)
	}
	answer, err := w.session.read(rev, agreed, reads...)
	if err != nil {
		return fmt.Errorf("reading the tickets ahead: %w", err)
	}
	w.session.engine.mu.Lock()
	defer w.session.engine.mu.Unlock()
	for i, t := range tickets {
		now := firstOf(answer.kvs(i))
		if w.remote[t.key] == t && now.CreateRevision != t.rev {
			w.goneLocked(t)
		}
	}
	w.syncedLocked(answer.rev())
	w.updateLocked()
	return nil
}

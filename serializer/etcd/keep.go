package etcd

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

const (
	checkInterval = time.Second      // between looks at what a watch should have told
	lingerTime    = 10 * time.Second // that an empty line is kept with its watch
	maxVerify     = 64               // tickets asked for one by one
	longLine      = 256              // tickets; reading so many costs more than asking for a few
	maxTargets    = 4                // watched at a time, of which one is needed
)

// keeper does for a line what needs etcd: it watches what the first of ours
// waits for, and looks at the queue where the line must know more. What a watch
// tells moves the border at once, in the feed that brings it.
//
// It goes on watching the last few keys that it had to. Keys are used again, and
// where a few processes take turns, the one ahead is often the same: then a
// hand-over needs no new watch.
type keeper struct {
	*line
	ours   *target   // deletions of our own tickets by others
	ahead  []*target // the last needed one first
	failed int       // watches in a row that could not be had
}

// target is what is watched: a mark, or a prefix of tickets.
type target struct {
	key  string
	w    *watch
	lost atomic.Bool
}

// task is what a line needs.
type task struct {
	look   bool   // at the whole queue
	target string // to be watched
	retire bool   // nothing; the line is not needed any more
	check  bool   // a look now and then, in case a watch has failed
	rev    int64  // that a look must have reached
}

// keep runs from the first ticket of a line until the line is forgotten.
func (l *line) keep() {
	k := &keeper{line: l}
	defer k.stop()
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	for l.session.ctx.Err() == nil {
		t := l.task()
		if t.retire {
			return
		}
		acted, err := k.act(t)
		if err != nil {
			l.session.complain(l.queue, err)
			sleep(l.session.ctx, retryPause)
			continue
		}
		if acted {
			continue
		}
		select {
		case <-l.changed:
		case <-ticker.C:
			// Other members may know more than the preferred one.
			if t.check {
				err = k.look(t.rev, true)
			}
		case <-l.session.ctx.Done():
		}
		if err != nil {
			l.session.complain(l.queue, err)
		}
	}
}

// stop ends all watches.
func (k *keeper) stop() {
	for _, t := range append(k.ahead, k.ours) {
		if t != nil {
			t.w.stop()
		}
	}
}

// task finds out what the line needs now.
func (l *line) task() task {
	e := l.session.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	t := task{check: time.Now().Before(l.doubt), rev: max(l.covered, l.stale)}
	if l.tail != nil {
		t.rev = max(t.rev, l.tail.rev)
	}
	if l.first == nil {
		t.retire = l.empty() && l.leaving == 0 && !t.check && time.Since(l.idle) > lingerTime
		if t.retire {
			l.retire()
		}
		return t
	}
	// Half of those who wait may be unknown to the line: so it looks once for
	// many that enter, and still always knows who is next.
	t.look = l.unsure || l.stale > 0 || l.first.rev > l.covered || l.uncovered > l.waiting-l.uncovered
	t.rev = max(t.rev, l.missed)
	t.target = l.blocker()
	t.check = t.check || t.target != ""
	return t
}

// retire forgets the line. The caller holds the lock.
func (l *line) retire() {
	delete(l.session.lines, l.queue)
	if l.slots > 0 {
		marks := l.session.engine.keys.marks(l.queue, l.session.id)
		l.session.remove(deletion{key: marks, end: prefixEnd(marks)})
	}
}

// blocker is what must be watched for the first of ours to enter in time. One
// that must be alone enters when all before it have gone, so the mark of the
// last of those will do. Any other may enter when one of many goes. The caller
// holds the lock.
func (l *line) blocker() string {
	last := l.blockerOf(l.first)
	switch {
	case last == nil:
		return ""
	case strict(l.first):
		return l.session.engine.keys.mark(last.key)
	default:
		return l.prefix
	}
}

// blockerOf returns the last ticket of others before e, which may be nil.
func (l *line) blockerOf(e *entry) *entry {
	if e == nil || len(l.foreign) == 0 {
		return nil
	}
	for e = e.prev; e != nil && e.place != nil; {
		e = e.prev
	}
	return e
}

func strict(e *entry) bool { return !e.rule.Shared && e.rule.Limit <= 1 }

// act does what a task needs first. It reports whether it did something, so
// that there may be another task now.
func (k *keeper) act(t task) (bool, error) {
	if k.ours == nil || k.ours.lost.Load() {
		rev, err := k.watchOurs()
		if err != nil {
			return true, err
		}
		t.rev = max(t.rev, rev)
	}
	switch {
	case t.target != "" && !k.watches(t.target):
		return true, k.attend(t)
	case t.look:
		return true, k.look(t.rev, false)
	}
	return false, nil
}

// start begins to watch a target.
func (k *keeper) start(t *target, request *pb.WatchCreateRequest, heed func([]*mvccpb.Event)) (rev int64, err error) {
	t.w, rev, err = k.session.watch(k.failed, request, heed, func() {
		t.lost.Store(true)
		k.signal()
	})
	if err != nil {
		k.failed++
		return 0, fmt.Errorf("watching %s: %w", t.key, err)
	}
	k.failed = 0
	return rev, nil
}

// watchOurs hears of our own tickets that are deleted. Where that was
// interrupted, a look must follow.
func (k *keeper) watchOurs() (int64, error) {
	prefix := k.session.engine.keys.tickets(k.queue, k.session.id)
	again := k.ours != nil
	t := &target{key: prefix}
	rev, err := k.start(t, watchOf(prefix, prefixEnd(prefix), pb.WatchCreateRequest_NOPUT), k.heedOurs)
	if err != nil {
		return 0, err
	}
	k.ours = t
	if again {
		k.session.engine.mu.Lock()
		defer k.session.engine.mu.Unlock()
		k.unsure, k.missed = true, max(k.missed, rev)
	}
	return rev, nil
}

// watches reports whether a key is watched, and notes that it is needed.
func (k *keeper) watches(key string) bool {
	k.ahead = slices.DeleteFunc(k.ahead, func(t *target) bool { return t.lost.Load() })
	i := slices.IndexFunc(k.ahead, func(t *target) bool { return t.key == key })
	if i < 0 {
		return false
	}
	needed := k.ahead[i]
	copy(k.ahead[1:i+1], k.ahead[:i])
	k.ahead[0] = needed
	return true
}

// attend watches another target. First the watch, then the look: what the look
// shows, the watch will tell the end of.
func (k *keeper) attend(t task) error {
	w := &target{key: t.target}
	request, heed := watchOf(t.target, prefixEnd(t.target), pb.WatchCreateRequest_NOPUT), k.heedAhead
	if t.target != k.prefix {
		request, heed = &pb.WatchCreateRequest{Key: []byte(t.target)}, k.heedMarks
	}
	rev, err := k.start(w, request, heed)
	if err != nil {
		return err
	}
	if len(k.ahead) == maxTargets {
		k.ahead[maxTargets-1].w.stop()
		k.ahead = k.ahead[:maxTargets-1]
	}
	k.ahead = slices.Insert(k.ahead, 0, w)
	return k.look(max(t.rev, rev), false)
}

// heedOurs hears of tickets of ours that were deleted.
func (k *keeper) heedOurs(events []*mvccpb.Event) {
	e := k.session.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, event := range events {
		if i == 0 || event.Kv.ModRevision != events[i-1].Kv.ModRevision {
			e.measure(k.session.answered, event.Kv.ModRevision)
		}
		k.heard(string(event.Kv.Key), event.Kv.ModRevision)
	}
	k.update()
}

// heedAhead hears of tickets of others that were deleted.
func (k *keeper) heedAhead(events []*mvccpb.Event) {
	k.heed(events, func(event *mvccpb.Event) { k.heard(string(event.Kv.Key), event.Kv.ModRevision) })
}

// heedMarks hears how tickets of others have ended.
func (k *keeper) heedMarks(events []*mvccpb.Event) {
	keys := k.session.engine.keys
	k.heed(events, func(event *mvccpb.Event) {
		rev := event.Kv.ModRevision
		m, ok := parseMark(event.Kv.Value)
		switch {
		case event.Type == mvccpb.Event_DELETE || !ok: // its process is gone, or has forgotten the queue
			k.stale = max(k.stale, rev)
		case m.left:
			k.passed(m.rev)
		default:
			k.heard(keys.marked(string(event.Kv.Key)), rev)
		}
	})
}

// heed draws the consequences of events. Where the last before our first one
// has gone, it must be found out whether those before that one are there still,
// unless it was inside: it may have been given up.
func (k *keeper) heed(events []*mvccpb.Event, each func(*mvccpb.Event)) {
	e := k.session.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	first, before := k.first, k.blockerOf(k.first)
	for _, event := range events {
		each(event)
	}
	now := k.blockerOf(k.first)
	if now != nil && now != before && k.first == first && strict(first) {
		k.stale = max(k.stale, events[len(events)-1].Kv.ModRevision)
	}
	k.update()
}

// look brings the line to the present, or to a revision at least. It asks all
// members for their agreement, or one for what it has.
func (k *keeper) look(rev int64, agreed bool) error {
	if doubtful := k.doubtful(); len(doubtful) > 0 {
		return k.verify(doubtful, rev, agreed)
	}
	answer, err := k.session.read(rev, agreed, allOf(k.prefix))
	if err != nil {
		return fmt.Errorf("reading the queue: %w", err)
	}
	k.session.engine.mu.Lock()
	defer k.session.engine.mu.Unlock()
	k.apply(answer.Responses[0].GetResponseRange().Kvs, answer.Header.Revision)
	k.update()
	return nil
}

// doubtful returns the tickets ahead of our first one, where it is enough to
// ask for these, and cheaper than for the whole queue.
func (k *keeper) doubtful() (tickets []*entry) {
	k.session.engine.mu.Lock()
	defer k.session.engine.mu.Unlock()
	if k.length < longLine || k.unsure || k.first == nil || k.first.rev > k.covered || k.uncovered > k.waiting-k.uncovered {
		return nil
	}
	for e := k.first.prev; e != nil; e = e.prev {
		if e.place != nil {
			continue
		}
		if len(tickets) == maxVerify {
			return nil
		}
		tickets = append(tickets, e)
	}
	return tickets
}

// verify asks which of some tickets still stand.
func (k *keeper) verify(tickets []*entry, rev int64, agreed bool) error {
	reads := make([]*pb.RangeRequest, len(tickets))
	for i, e := range tickets {
		reads[i] = keyOf(e.key)
	}
	answer, err := k.session.read(rev, agreed, reads...)
	if err != nil {
		return fmt.Errorf("reading the tickets ahead: %w", err)
	}
	k.session.engine.mu.Lock()
	defer k.session.engine.mu.Unlock()
	for i, e := range tickets {
		now := firstOf(answer.Responses[i].GetResponseRange().Kvs)
		if k.foreign[e.key] == e && now.CreateRevision != e.rev {
			k.line.gone(e)
		}
	}
	k.looked(answer.Header.Revision)
	k.update()
	return nil
}

// read reads at one revision, which is rev or later. Unless the members are to
// agree first, it asks one for what it has, which is cheap; if that is too old,
// they have to.
func (s *session) read(rev int64, agreed bool, reads ...*pb.RangeRequest) (answer *pb.TxnResponse, err error) {
	for tries := range 3 {
		agreed = agreed || tries > 0
		txn := new(pb.TxnRequest)
		for _, r := range reads {
			txn.Success = append(txn.Success, get(&pb.RangeRequest{Key: r.Key, RangeEnd: r.RangeEnd, KeysOnly: r.KeysOnly, Serializable: !agreed}))
		}
		if answer, err = s.commit(tries, txn); err == nil && answer.Header.Revision >= rev {
			return answer, nil
		}
	}
	if err == nil {
		err = fmt.Errorf("etcd is behind revision %d", rev)
	}
	return nil, err
}

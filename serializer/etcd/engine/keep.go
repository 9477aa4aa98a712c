package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	checkInterval = time.Second      // between looks at what a watch should have told
	lingerTime    = 10 * time.Second // that an empty line is kept with its watch
	maxVerify     = 64               // tickets asked for one by one
	longLine      = 256              // tickets; reading so many costs more than asking for a few
	maxTargets    = 4                // watched at a time, of which one is needed
)

// keeper does for a line what needs etcd: it watches what the first of ours
// waits for, and looks at the queue where the line must know more.
//
// It goes on watching the last few keys that it had to. Keys are used again, and
// where a few processes take turns, the one ahead is often the same: then a
// hand-over needs no new watch.
type keeper struct {
	*line
	ctx   context.Context // done with the keeper
	ours  watch           // deletions of our own tickets by others
	ahead []*target       // the last needed one first
	told  chan told       // by all of ahead
}

// target is a ticket's key, or the prefix of all, and the watch for it.
type target struct {
	key string
	watch
}

// told is what a target's watch tells.
type told struct {
	target *target
	answer clientv3.WatchResponse
	ended  bool
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
	ctx, cancel := context.WithCancel(l.session.ctx)
	defer cancel() // of all watches, too
	k := &keeper{line: l, ctx: ctx, told: make(chan told)}
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
		case answer, ok := <-k.ours.answers:
			k.heedOurs(answer, ok)
		case told := <-k.told:
			k.heedAhead(told)
		case <-ticker.C:
			if t.check {
				err = k.look(t.rev)
			}
		case <-l.session.ctx.Done():
		}
		if err != nil {
			l.session.complain(l.queue, err)
		}
	}
}

// task finds out what the line needs now.
func (l *line) task() task {
	e := l.session.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	t := task{check: time.Now().Before(l.doubt), rev: l.covered}
	if l.tail != nil {
		t.rev = max(t.rev, l.tail.rev)
	}
	if l.first == nil {
		t.retire = l.empty() && l.leaving == 0 && !t.check && time.Since(l.idle) > lingerTime
		if t.retire {
			delete(l.session.lines, l.queue)
		}
		return t
	}
	// Half of those who wait may be unknown to the line: so it looks once for
	// many that enter, and still always knows who is next.
	t.look = l.unsure || l.first.rev > l.covered || l.uncovered > l.waiting-l.uncovered
	t.rev = max(t.rev, l.missed)
	t.target = l.blocker()
	t.check = t.check || t.target != ""
	return t
}

// blocker is what must be watched for the first of ours to enter in time. One
// that must be alone enters when all before it have gone, so the last of those
// will do. Any other may enter when one of many goes. The caller holds the lock.
func (l *line) blocker() string {
	last := l.blockerOf(l.first)
	switch {
	case last == nil:
		return ""
	case strict(l.first):
		return last.key
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
	if k.ours.answers == nil {
		prefix := k.session.engine.keys.tickets(k.queue, k.session.id)
		rev, err := k.ours.start(k.ctx, k.session, prefix, clientv3.WithPrefix(), clientv3.WithFilterPut())
		if err != nil {
			return true, err
		}
		t.rev = max(t.rev, rev)
	}
	switch {
	case t.target != "" && !k.watches(t.target):
		return true, k.attend(t)
	case t.look:
		return true, k.look(t.rev)
	}
	return false, nil
}

// watches reports whether a key is watched, and notes that it is needed.
func (k *keeper) watches(key string) bool {
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
	opts := []clientv3.OpOption{clientv3.WithFilterPut()}
	if t.target == k.prefix {
		opts = append(opts, clientv3.WithPrefix())
	}
	w := &target{key: t.target}
	rev, err := w.start(k.ctx, k.session, t.target, opts...)
	if err != nil {
		return err
	}
	if len(k.ahead) == maxTargets {
		k.ahead[maxTargets-1].stop()
		k.ahead = k.ahead[:maxTargets-1]
	}
	k.ahead = slices.Insert(k.ahead, 0, w)
	go k.listen(w, w.answers)
	return k.look(max(t.rev, rev))
}

// listen passes on what a target's watch tells.
func (k *keeper) listen(w *target, answers clientv3.WatchChan) {
	for answer := range answers {
		if !k.tell(told{w, answer, answer.Canceled}) {
			return
		}
	}
	k.tell(told{target: w, ended: true})
}

func (k *keeper) tell(t told) bool {
	select {
	case k.told <- t:
		return true
	case <-k.ctx.Done():
		return false
	}
}

// heedOurs hears of tickets of ours that were deleted.
func (k *keeper) heedOurs(answer clientv3.WatchResponse, ok bool) {
	if !ok || answer.Canceled {
		k.ours.stop()
		return
	}
	s := k.session
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	for _, event := range answer.Events {
		k.heard(string(event.Kv.Key), event.Kv.ModRevision)
	}
	k.update()
}

// heedAhead hears of tickets of others that were deleted.
func (k *keeper) heedAhead(t told) {
	if t.ended {
		t.target.stop()
		k.ahead = slices.DeleteFunc(k.ahead, func(w *target) bool { return w == t.target })
		return
	}
	if rev, unsure := k.heed(t.answer.Events); unsure {
		if err := k.look(rev); err != nil {
			k.session.complain(k.queue, err)
		}
	}
}

// heed takes the deleted tickets out of the line. Where one was the last before
// our first one, it is unsure then whether those before it are there still: it
// may have been inside, and have waited for all of them, or may have been given
// up.
func (k *keeper) heed(events []*clientv3.Event) (rev int64, unsure bool) {
	s := k.session
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	first, before := k.first, k.blockerOf(k.first)
	for _, event := range events {
		k.heard(string(event.Kv.Key), event.Kv.ModRevision)
		rev = max(rev, event.Kv.ModRevision)
	}
	k.update()
	now := k.blockerOf(k.first)
	return rev, now != nil && now != before && k.first == first && strict(first)
}

// look brings the line to the present, or to a revision at least.
func (k *keeper) look(rev int64) error {
	if doubtful := k.doubtful(); len(doubtful) > 0 {
		return k.verify(doubtful, rev)
	}
	answer, err := k.session.read(rev, clientv3.OpGet(k.prefix, clientv3.WithPrefix()))
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
func (k *keeper) verify(tickets []*entry, rev int64) error {
	ops := make([]clientv3.Op, len(tickets))
	for i, e := range tickets {
		ops[i] = clientv3.OpGet(e.key, clientv3.WithKeysOnly())
	}
	answer, err := k.session.read(rev, ops...)
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
	k.update()
	return nil
}

// read reads at one revision, which is rev or later. It asks the nearest member
// for what it has, which is cheap. If that is too old, or no answer comes, it
// has the cluster agree first.
func (s *session) read(rev int64, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	local := make([]clientv3.Op, len(ops))
	for i, op := range ops {
		clientv3.WithSerializable()(&op)
		local[i] = op
	}
	var err error
	for tries, ops := range [][]clientv3.Op{local, ops, ops} {
		var answer *clientv3.TxnResponse
		if answer, err = s.readOnce(tries, ops); err == nil && answer.Header.Revision >= rev {
			return answer, nil
		}
	}
	if err == nil {
		err = fmt.Errorf("etcd is behind revision %d", rev)
	}
	return nil, err
}

func (s *session) readOnce(tries int, ops []clientv3.Op) (*clientv3.TxnResponse, error) {
	ctx, cancel := context.WithTimeout(s.ctx, attemptTime(tries))
	defer cancel()
	return s.client.Txn(ctx).Then(ops...).Commit()
}

// watch is a watch that begins now. One that begins in the past is served by
// etcd only ten times a second, so nothing here asks for it; that also leaves
// nothing for a compaction to take away.
type watch struct {
	answers clientv3.WatchChan
	cancel  context.CancelFunc
}

// start begins the watch and returns the revision from which on it tells all.
func (w *watch) start(parent context.Context, s *session, key string, opts ...clientv3.OpOption) (int64, error) {
	w.stop()
	// Without a leader, a member knows of nothing new; the watch then goes to
	// another one.
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(parent))
	stuck := time.AfterFunc(attemptTime(0), cancel)
	answers := s.client.Watch(ctx, key, append(opts, clientv3.WithCreatedNotify())...)
	created, ok := <-answers
	if !stuck.Stop() || !ok || !created.Created || created.Canceled {
		cancel()
		return 0, fmt.Errorf("watching %s: %w", key, watchError(created))
	}
	w.answers, w.cancel = answers, cancel
	return created.Header.Revision, nil
}

func watchError(answer clientv3.WatchResponse) error {
	if err := answer.Err(); err != nil {
		return err
	}
	return context.DeadlineExceeded
}

func (w *watch) stop() {
	if w.cancel != nil {
		w.cancel()
	}
	w.answers, w.cancel = nil, nil
}

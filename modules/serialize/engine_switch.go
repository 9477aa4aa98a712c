package serialize

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// A queue is a directory and a prefix. Within one process it stays the same queue
// when a reload changes its engine, or when its path starts to lead to another
// directory. Engines know nothing of each other, so this file counts the requests
// of this process in front of them. Requests for a new engine take their tickets
// only after all requests of the old engine have left.
//
// A request waits here before it has a ticket, never while it holds one. So no
// request waits for one that came later, and no circle of waiting requests can
// form, whatever the engines do.

// localQueue is one queue as the requests of this process see it. Nearly always it
// has one generation. All its methods need the lock of [localQueueTable].
type localQueue struct {
	name        localName
	generations []*generation // in order of arrival; the first may use its engine
}

// localName is a name of a queue. A queue whose path leads through a symbolic link
// has several: the path as it is written, and where it leads.
type localName struct{ path, queue string }

// generation is a row of consecutive requests that use the same engine.
type generation struct {
	engine   *sharedEngine
	requests int          // that have arrived and not left
	inside   int          // of these, those that hold a turn
	pending  []*localTurn // of these, in order, those that may not have joined the engine's queue yet
}

// localTurn is a request's way through its local queues, and then its turn.
type localTurn struct {
	serializer.Turn
	engine   *sharedEngine
	places   []localPlace
	one      [1]localPlace // the memory of places, for most requests
	wait     *engineWait   // nil if the engine's queue could be joined at once
	entered  bool
	departed bool
}

// localPlace is where a request stands in one local queue.
type localPlace struct {
	queue      *localQueue
	generation *generation
}

// engineWait is a request's wait for earlier generations, without a ticket.
type engineWait struct {
	arrival  serializer.Arrival
	arrived  time.Time
	token    uint64     // identifies the request until the engine issues a ticket
	position int        // how many were ahead on arrival
	ready    chan error // one message: nil if the engine's queue may be joined, else why not
	ended    bool       // the message was sent
}

// localQueueTable holds all local queues that have requests in them. Its lock is
// never held while an engine is called.
type localQueueTable struct {
	mu        sync.Mutex
	byName    map[localName]*localQueue
	spare     []*localQueue // empty ones, to be reused
	lastToken uint64
}

var localQueues = localQueueTable{byName: make(map[localName]*localQueue)}

// Enter takes a turn from the engine, once all requests have left that came to the
// queue earlier with another engine.
func (e *engineRef) Enter(ctx context.Context, a serializer.Arrival) (serializer.Turn, error) {
	return e.enter(ctx, new(localTurn), a)
}

// enter is Enter with memory of the caller.
func (e *engineRef) enter(ctx context.Context, t *localTurn, a serializer.Arrival) (serializer.Turn, error) {
	t.engine = e.sharedEngine
	if err := localQueues.arrive(t, e.directory.names, &a); err != nil {
		return nil, err
	}
	if err := t.enter(ctx, a); err != nil {
		return nil, err
	}
	return t, nil
}

// enter waits for the turn of a request that has arrived.
func (t *localTurn) enter(ctx context.Context, a serializer.Arrival) error {
	if t.wait != nil {
		if err := t.wait.await(ctx); err != nil {
			localQueues.leave(t)
			return t.wait.refused(err)
		}
		a = t.remaining()
	}
	return t.settle(t.engine.Engine.Enter(ctx, a))
}

// settle notes how the engine has answered.
func (t *localTurn) settle(turn serializer.Turn, err error) error {
	if err != nil {
		localQueues.leave(t)
		return err
	}
	t.Turn = turn
	localQueues.enter(t)
	return nil
}

// join is enter without a wait, and without a goroutine where the engine needs none.
// done is called in a goroutine of its own when the wait has ended, with nil if t has
// the turn.
func (e *engineRef) join(t *localTurn, a serializer.Arrival, done func(error)) serializer.Wait {
	t.engine = e.sharedEngine
	if err := localQueues.arrive(t, e.directory.names, &a); err != nil {
		go done(err)
		return cancelWait(func(error) {})
	}
	if t.wait == nil {
		return serializer.Join(t.engine.Engine, a, func(turn serializer.Turn, err error) { done(t.settle(turn, err)) })
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() { done(t.enter(ctx, a)) }()
	return cancelWait(cancel)
}

// cancelWait is a wait that is given up by cancelling a context.
type cancelWait context.CancelCauseFunc

// GiveUp implements [serializer.Wait].
func (w cancelWait) GiveUp(cause error) { w(cause) }

// takeTurn enters the queue behind all requests of any engine, unless the request
// would wait for itself.
func (v *visit) takeTurn(ctx context.Context, a serializer.Arrival) (serializer.Turn, error) {
	if v.insideElsewhere() {
		return v.engine.Engine.Enter(ctx, a)
	}
	return v.engine.enter(ctx, &v.local, a)
}

// insideElsewhere reports whether the request is inside this queue already, by
// another engine. Then it holds the turn among all requests of this process.
func (v *visit) insideElsewhere() bool {
	at := cmp.Or(v.engine, v.handler.engine).directory // one that is still to take its ticket has none yet
	for outer := v.next; outer != nil; outer = outer.next {
		if outer.turn != nil && !outer.ended.Load() && outer.queue == v.queue && outer.engine.directory.same(at) {
			return true
		}
	}
	return false
}

// Leave implements [serializer.Turn].
func (t *localTurn) Leave() {
	t.Turn.Leave()
	localQueues.leave(t)
}

// Position implements [serializer.Turn].
func (t *localTurn) Position() int {
	if t.wait == nil {
		return t.Turn.Position()
	}
	return max(t.wait.position, t.Turn.Position())
}

// remaining is the arrival for the engine after a wait here. It has no limit of
// waiters: a request that was accepted is not refused because the queue has grown
// since, unless a later one supersedes it.
func (t *localTurn) remaining() serializer.Arrival {
	a := t.wait.arrival
	if !a.DropOldest {
		a.MaxWaiting = 0
	}
	a.Joined = func() { localQueues.joined(t) }
	if a.Timeout > 0 {
		a.Timeout = max(a.Timeout-time.Since(t.wait.arrived), 1)
	}
	return a
}

// await returns nil once the engine's queue may be joined.
func (w *engineWait) await(ctx context.Context) error {
	var expired <-chan time.Time
	if w.arrival.Timeout > 0 {
		timer := time.NewTimer(w.arrival.Timeout)
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case err := <-w.ready:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-expired:
		return serializer.ErrTimeout
	}
}

// endLocked ends the wait. It is called once.
func (w *engineWait) endLocked(err error) {
	w.ended = true
	w.ready <- err
}

func (w *engineWait) refused(err error) error {
	return &serializer.Refused{Reason: serializer.ReasonOf(err), Queue: w.arrival.Queue, Position: w.position, Token: w.token, Err: err}
}

// arrive adds a request to the local queues of its names.
func (q *localQueueTable) arrive(t *localTurn, names []string, a *serializer.Arrival) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	t.places = t.one[:0]
	free, ahead, waiting := true, 0, 0
	for _, name := range names {
		l := q.queueLocked(localName{name, a.Queue})
		free = free && l.freeLocked(t.engine)
		requests, inside := l.countLocked()
		ahead, waiting = max(ahead, requests), max(waiting, requests-inside)
		t.places = append(t.places, localPlace{l, l.joinLocked(t.engine)})
	}
	if free {
		return nil
	}
	w := &engineWait{arrival: *a, arrived: time.Now(), position: ahead, ready: make(chan error, 1)}
	if a.MaxWaiting > 0 && waiting >= a.MaxWaiting {
		if !a.DropOldest {
			q.leaveLocked(t)
			return w.refused(serializer.ErrFull)
		}
		t.supersedeLocked()
	}
	q.lastToken = max(uint64(max(w.arrived.UnixMicro(), 0)), q.lastToken+1)
	w.token = q.lastToken
	t.wait = w
	for _, p := range t.places {
		p.generation.pending = append(p.generation.pending, t)
	}
	return nil
}

// supersedeLocked refuses the first pending request of t's queues, of those that may
// be superseded. Those that have joined the engine's queue are left to the engine.
func (t *localTurn) supersedeLocked() {
	for _, p := range t.places {
		for _, g := range p.queue.generations {
			i := slices.IndexFunc(g.pending, func(o *localTurn) bool { return !o.wait.ended && o.wait.arrival.DropOldest })
			if i >= 0 {
				g.pending[i].wait.endLocked(serializer.ErrSuperseded)
				return
			}
		}
	}
}

// queueLocked returns the local queue of a name.
func (q *localQueueTable) queueLocked(name localName) *localQueue {
	l := q.byName[name]
	if l != nil {
		return l
	}
	if n := len(q.spare); n > 0 {
		l, q.spare = q.spare[n-1], q.spare[:n-1]
	} else {
		l = new(localQueue)
	}
	l.name = name
	q.byName[name] = l
	return l
}

// freeLocked reports whether a request may go straight to its engine: there is no
// request with another engine, and none is pending.
func (l *localQueue) freeLocked(engine *sharedEngine) bool {
	return len(l.generations) == 0 ||
		len(l.generations) == 1 && l.generations[0].engine == engine && len(l.generations[0].pending) == 0
}

func (l *localQueue) countLocked() (requests, inside int) {
	for _, g := range l.generations {
		requests, inside = requests+g.requests, inside+g.inside
	}
	return requests, inside
}

// joinLocked adds a request at the end.
func (l *localQueue) joinLocked(engine *sharedEngine) *generation {
	n := len(l.generations)
	if n == 0 || l.generations[n-1].engine != engine {
		l.addLocked(engine)
		n++
	}
	g := l.generations[n-1]
	g.requests++
	return g
}

// addLocked begins a generation, in the memory of an ended one if there is one.
func (l *localQueue) addLocked(engine *sharedEngine) {
	n := len(l.generations)
	if n < cap(l.generations) {
		l.generations = l.generations[:n+1]
	} else {
		l.generations = append(l.generations, nil)
	}
	if l.generations[n] == nil {
		l.generations[n] = new(generation)
	}
	l.generations[n].engine = engine
}

// enter notes that a request holds its turn.
func (q *localQueueTable) enter(t *localTurn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t.entered = true
	for _, p := range t.places {
		p.generation.inside++
	}
	t.joinedLocked()
}

// joined notes that a request has joined the engine's queue, so that the next one
// may join behind it.
func (q *localQueueTable) joined(t *localTurn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t.joinedLocked()
}

// joinedLocked ends the request's time as pending, if it was.
func (t *localTurn) joinedLocked() {
	if t.wait == nil {
		return
	}
	for _, p := range t.places {
		if i := slices.Index(p.generation.pending, t); i >= 0 {
			p.generation.pending = slices.Delete(p.generation.pending, i, i+1)
		}
	}
	t.advanceLocked()
}

// leave takes a request out of its local queues.
func (q *localQueueTable) leave(t *localTurn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.leaveLocked(t)
}

func (q *localQueueTable) leaveLocked(t *localTurn) {
	if t.departed {
		return
	}
	t.departed = true
	t.joinedLocked()
	for _, p := range t.places {
		p.generation.requests--
		if t.entered {
			p.generation.inside--
		}
		if p.generation.requests == 0 {
			q.endLocked(p)
		}
	}
	t.advanceLocked()
}

// endLocked takes a generation out of its queue, and the queue out of the table if
// that was the last one.
func (q *localQueueTable) endLocked(p localPlace) {
	l, g := p.queue, p.generation
	i := slices.Index(l.generations, g)
	copy(l.generations[i:], l.generations[i+1:])
	last := len(l.generations) - 1
	l.generations[last] = g // its memory is reused
	g.engine = nil
	l.generations = l.generations[:last]
	if last > 0 {
		return
	}
	delete(q.byName, l.name)
	if len(q.spare) < maxSpareQueues {
		q.spare = append(q.spare, l)
	}
}

// maxSpareQueues bounds the memory that is kept for later local queues.
const maxSpareQueues = 64

// firstLocked is the first pending request of the first generation, or nil.
func (l *localQueue) firstLocked() *localTurn {
	if len(l.generations) == 0 || len(l.generations[0].pending) == 0 {
		return nil
	}
	return l.generations[0].pending[0]
}

// advanceLocked lets the next pending request of each of t's queues go on.
func (t *localTurn) advanceLocked() {
	for _, p := range t.places {
		p.queue.advanceLocked()
	}
}

// advanceLocked lets the first pending request join its engine's queue, if it is
// the first in all its local queues.
func (l *localQueue) advanceLocked() {
	t := l.firstLocked()
	if t == nil || t.wait.ended {
		return
	}
	for _, p := range t.places {
		if p.queue.firstLocked() != t {
			return
		}
	}
	t.wait.endLocked(nil)
}

// pendingLocked lists the requests that wait to join an engine's queues, in order
// of arrival.
func (q *localQueueTable) pendingLocked(engine *sharedEngine) (pending []*localTurn) {
	for _, l := range q.byName {
		for _, g := range l.generations {
			for _, t := range g.pending {
				if t.engine == engine && t.places[0].queue == l && !t.wait.ended {
					pending = append(pending, t)
				}
			}
		}
	}
	slices.SortFunc(pending, func(a, b *localTurn) int { return cmp.Compare(a.wait.token, b.wait.token) })
	return pending
}

// evict refuses a request that waits to join a queue. It reports whether there was
// one with the token.
func (q *localQueueTable) evict(engine *sharedEngine, queue string, token uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range q.pendingLocked(engine) {
		if t.wait.arrival.Queue == queue && t.wait.token == token {
			t.wait.endLocked(serializer.ErrEvicted)
			return true
		}
	}
	return false
}

// refuseAll refuses all requests that wait to join an engine's queues.
func (q *localQueueTable) refuseAll(engine *sharedEngine, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range q.pendingLocked(engine) {
		t.wait.endLocked(err)
	}
}

// list adds the requests that wait to join an engine's queues to the states of
// these.
func (q *localQueueTable) list(engine *sharedEngine, path string, states []serializer.QueueState) []serializer.QueueState {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range q.pendingLocked(engine) {
		i := slices.IndexFunc(states, func(s serializer.QueueState) bool { return s.Prefix == t.wait.arrival.Queue })
		if i < 0 {
			i = len(states)
			states = append(states, serializer.QueueState{Path: path, Prefix: t.wait.arrival.Queue})
		}
		states[i].Add(t.wait.state(), t.wait.arrival.Rule)
	}
	return states
}

// state describes the request in lists of tickets.
func (w *engineWait) state() serializer.TicketState {
	arrived := w.arrived.UTC()
	s := serializer.TicketState{
		Token:     strconv.FormatUint(w.token, 10),
		State:     serializer.StateWaiting,
		Since:     arrived,
		Arrived:   arrived,
		Owner:     fmt.Sprintf("pid %d, waiting for requests of the queue's former engine", os.Getpid()),
		Requester: w.arrival.Requester,
	}
	if w.arrival.Client.IsValid() {
		s.Client = w.arrival.Client.String()
	}
	return s
}

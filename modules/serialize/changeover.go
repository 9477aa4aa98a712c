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

// A queue is a directory and a prefix, and within one process it stays the same
// queue when a reload gives it another engine, or when the path leads to
// another directory since. Engines know nothing of each other, so the requests
// of this process are counted here, in front of them: those of the new engine
// take their tickets only when all of the old one have left.
//
// A request waits here before it has a ticket, never while it holds one. So
// whoever came first never waits for one who came later, and nobody can block
// anybody in a circle, whatever the engines do.

// lane is one queue, as the requests of this process see it. Most of the time it
// has one run.
type lane struct {
	name laneName
	runs []*run // in the order they came; the first may use its engine
}

// laneName is a name of a queue. A queue has several where its path leads
// through a symbolic link: the path as it is written, and where it leads.
type laneName struct{ path, queue string }

// run are requests with one engine that came one after the other.
type run struct {
	engine  *sharedEngine
	members int         // requests that have come and not left
	inside  int         // of these, those that have their turn
	gate    []*crossing // of these, those that have not joined the engine's queue, where that is waited for
}

// crossing is one request's way through its lanes. It is the turn, too.
type crossing struct {
	serializer.Turn
	engine   *sharedEngine
	stops    []stop
	one      [1]stop // the memory of stops, for most
	wait     *wait   // nil where the engine's queue could be joined at once
	entered  bool
	departed bool
}

// stop is the place of a request in one lane.
type stop struct {
	lane *lane
	run  *run
}

// wait is that of a request for the runs before its own, without a ticket.
type wait struct {
	arrival  serializer.Arrival
	arrived  time.Time
	token    uint64     // a number to be called by until the engine gives one out
	position int        // how many were ahead
	ready    chan error // one message: the engine's queue may be joined, or why not
	called   bool       // the message was sent
}

// laneTable are all lanes with requests in them. Its lock is never held while an
// engine is called.
type laneTable struct {
	mu     sync.Mutex
	byName map[laneName]*lane
	spare  []*lane // empty ones, for use again
	last   uint64  // the last token given out
}

var lanes = laneTable{byName: make(map[laneName]*lane)}

// Enter takes a turn from the engine, once all who came to the queue before with
// another engine have left it.
func (e *engineRef) Enter(ctx context.Context, a serializer.Arrival) (serializer.Turn, error) {
	return e.cross(ctx, new(crossing), a)
}

// cross is Enter for those who have the memory for it.
func (e *engineRef) cross(ctx context.Context, c *crossing, a serializer.Arrival) (serializer.Turn, error) {
	c.engine = e.sharedEngine
	if err := lanes.arrive(c, e.place.names, &a); err != nil {
		return nil, err
	}
	if c.wait != nil {
		if err := c.wait.await(ctx); err != nil {
			lanes.leave(c)
			return nil, c.wait.refused(err)
		}
		a = c.remaining()
	}
	turn, err := e.sharedEngine.Engine.Enter(ctx, a)
	if err != nil {
		lanes.leave(c)
		return nil, err
	}
	c.Turn = turn
	lanes.enter(c)
	return c, nil
}

// takeTurn enters the queue: behind all who came by any engine, unless the request
// would wait for itself.
func (v *visit) takeTurn(ctx context.Context, a serializer.Arrival) (serializer.Turn, error) {
	if v.insideElsewhere() {
		return v.engine.Engine.Enter(ctx, a)
	}
	return v.engine.cross(ctx, &v.crossing, a)
}

// insideElsewhere reports whether the request is inside this queue already, by
// another engine: it has the turn among all requests of this process.
func (v *visit) insideElsewhere() bool {
	for outer := v.next; outer != nil; outer = outer.next {
		if outer.turn != nil && !outer.ended.Load() && outer.queue == v.queue && outer.engine.place.same(v.engine.place) {
			return true
		}
	}
	return false
}

// Leave implements [serializer.Turn].
func (c *crossing) Leave() {
	c.Turn.Leave()
	lanes.leave(c)
}

// Position implements [serializer.Turn].
func (c *crossing) Position() int {
	if c.wait == nil {
		return c.Turn.Position()
	}
	return max(c.wait.position, c.Turn.Position())
}

// remaining is the arrival as the engine is to see it. Who was let in line is
// not sent away because the line has grown since.
func (c *crossing) remaining() serializer.Arrival {
	a := c.wait.arrival
	a.MaxWaiting = 0
	a.Joined = func() { lanes.joined(c) }
	if a.Timeout > 0 {
		a.Timeout = max(a.Timeout-time.Since(c.wait.arrived), 1)
	}
	return a
}

// await returns nil once the engine's queue may be joined.
func (w *wait) await(ctx context.Context) error {
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

// tell ends the wait.
func (w *wait) tell(err error) {
	w.called = true
	w.ready <- err
}

func (w *wait) refused(err error) error {
	return &serializer.Refused{Reason: serializer.ReasonOf(err), Queue: w.arrival.Queue, Position: w.position, Token: w.token, Err: err}
}

// arrive puts a request into the lanes of its queue.
func (t *laneTable) arrive(c *crossing, names []string, a *serializer.Arrival) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.stops = c.one[:0]
	free, ahead, waiting := true, 0, 0
	for _, name := range names {
		l := t.lane(laneName{name, a.Queue})
		free = free && l.free(c.engine)
		members, inside := l.count()
		ahead, waiting = max(ahead, members), max(waiting, members-inside)
		c.stops = append(c.stops, stop{l, l.join(c.engine)})
	}
	if free {
		return nil
	}
	w := &wait{arrival: *a, arrived: time.Now(), position: ahead, ready: make(chan error, 1)}
	if a.MaxWaiting > 0 && waiting >= a.MaxWaiting {
		t.depart(c)
		return w.refused(serializer.ErrFull)
	}
	t.last = max(uint64(max(w.arrived.UnixMicro(), 0)), t.last+1)
	w.token = t.last
	c.wait = w
	for _, s := range c.stops {
		s.run.gate = append(s.run.gate, c)
	}
	return nil
}

// lane returns the lane of a name.
func (t *laneTable) lane(name laneName) *lane {
	l := t.byName[name]
	if l != nil {
		return l
	}
	if n := len(t.spare); n > 0 {
		l, t.spare = t.spare[n-1], t.spare[:n-1]
	} else {
		l = new(lane)
	}
	l.name = name
	t.byName[name] = l
	return l
}

// free reports whether a request may go straight to its engine: nobody is there
// with another, and nobody waits here.
func (l *lane) free(engine *sharedEngine) bool {
	return len(l.runs) == 0 || len(l.runs) == 1 && l.runs[0].engine == engine && len(l.runs[0].gate) == 0
}

func (l *lane) count() (members, inside int) {
	for _, r := range l.runs {
		members, inside = members+r.members, inside+r.inside
	}
	return members, inside
}

// join puts a request behind all that are there.
func (l *lane) join(engine *sharedEngine) *run {
	n := len(l.runs)
	if n == 0 || l.runs[n-1].engine != engine {
		l.add(engine)
		n++
	}
	r := l.runs[n-1]
	r.members++
	return r
}

// add begins a run, in the memory of one that has ended if there is one.
func (l *lane) add(engine *sharedEngine) {
	n := len(l.runs)
	if n < cap(l.runs) {
		l.runs = l.runs[:n+1]
	} else {
		l.runs = append(l.runs, nil)
	}
	if l.runs[n] == nil {
		l.runs[n] = new(run)
	}
	l.runs[n].engine = engine
}

// enter notes that a request has its turn.
func (t *laneTable) enter(c *crossing) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.entered = true
	for _, s := range c.stops {
		s.run.inside++
	}
	t.pass(c)
}

// joined notes that a request has its place in the engine's queue: the next one
// may have the place behind it.
func (t *laneTable) joined(c *crossing) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pass(c)
}

// pass takes a request out of the gates.
func (t *laneTable) pass(c *crossing) {
	if c.wait == nil {
		return
	}
	for _, s := range c.stops {
		if i := slices.Index(s.run.gate, c); i >= 0 {
			s.run.gate = slices.Delete(s.run.gate, i, i+1)
		}
	}
	c.call()
}

// leave takes a request out of its lanes.
func (t *laneTable) leave(c *crossing) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.depart(c)
}

func (t *laneTable) depart(c *crossing) {
	if c.departed {
		return
	}
	c.departed = true
	t.pass(c)
	for _, s := range c.stops {
		s.run.members--
		if c.entered {
			s.run.inside--
		}
		if s.run.members == 0 {
			t.end(s.lane, s.run)
		}
	}
	c.call()
}

// call lets those come forward who have become the first of the lanes.
func (c *crossing) call() {
	for _, s := range c.stops {
		s.lane.call()
	}
}

// end takes a run out of its lane, and the lane out of the table if that was the
// last.
func (t *laneTable) end(l *lane, r *run) {
	i := slices.Index(l.runs, r)
	copy(l.runs[i:], l.runs[i+1:])
	last := len(l.runs) - 1
	l.runs[last] = r // its memory is for use again
	r.engine = nil
	l.runs = l.runs[:last]
	if last > 0 {
		return
	}
	delete(t.byName, l.name)
	if len(t.spare) < maxSpare {
		t.spare = append(t.spare, l)
	}
}

// maxSpare bounds the memory that is kept for lanes to come.
const maxSpare = 64

// first is the one at the gate of the first run.
func (l *lane) first() *crossing {
	if len(l.runs) == 0 || len(l.runs[0].gate) == 0 {
		return nil
	}
	return l.runs[0].gate[0]
}

// call lets the first one at the gate join its engine's queue, if it is the
// first in all its lanes.
func (l *lane) call() {
	c := l.first()
	if c == nil || c.wait.called {
		return
	}
	for _, s := range c.stops {
		if s.lane.first() != c {
			return
		}
	}
	c.wait.tell(nil)
}

// atGate lists the requests that wait to join an engine's queues, in the order
// they came.
func (t *laneTable) atGate(engine *sharedEngine) (waiting []*crossing) {
	for _, l := range t.byName {
		for _, r := range l.runs {
			for _, c := range r.gate {
				if c.engine == engine && c.stops[0].lane == l && !c.wait.called {
					waiting = append(waiting, c)
				}
			}
		}
	}
	slices.SortFunc(waiting, func(a, b *crossing) int { return cmp.Compare(a.wait.token, b.wait.token) })
	return waiting
}

// evict sends a request away that waits to join a queue. It reports whether
// there was one.
func (t *laneTable) evict(engine *sharedEngine, queue string, token uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.atGate(engine) {
		if c.wait.arrival.Queue == queue && c.wait.token == token {
			c.wait.tell(serializer.ErrEvicted)
			return true
		}
	}
	return false
}

// dismiss sends all away who wait to join an engine's queues.
func (t *laneTable) dismiss(engine *sharedEngine, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.atGate(engine) {
		c.wait.tell(err)
	}
}

// list adds those who wait to join an engine's queues to the states of these.
func (t *laneTable) list(engine *sharedEngine, path string, states []serializer.QueueState) []serializer.QueueState {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.atGate(engine) {
		i := slices.IndexFunc(states, func(s serializer.QueueState) bool { return s.Prefix == c.wait.arrival.Queue })
		if i < 0 {
			i = len(states)
			states = append(states, serializer.QueueState{Path: path, Prefix: c.wait.arrival.Queue})
		}
		states[i].Add(c.wait.state(), c.wait.arrival.Rule)
	}
	return states
}

// state describes the request for people.
func (w *wait) state() serializer.TicketState {
	arrived := w.arrived.UTC()
	s := serializer.TicketState{
		Token:     strconv.FormatUint(w.token, 10),
		State:     serializer.StateWaiting,
		Since:     arrived,
		Arrived:   arrived,
		Owner:     fmt.Sprintf("pid %d, for the queue's former engine to be left", os.Getpid()),
		Requester: w.arrival.Requester,
	}
	if w.arrival.Client.IsValid() {
		s.Client = w.arrival.Client.String()
	}
	return s
}

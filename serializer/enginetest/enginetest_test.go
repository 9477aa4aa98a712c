package enginetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Each engine that is wrong in one way fails the case that is named beside it.
func TestWrongEngines(t *testing.T) {
	for _, c := range []struct {
		wrong string
		found string // the case
		make  func(*wrongEngine)
	}{
		{"two are inside", "order", func(e *wrongEngine) {
			e.arrive = func(a *serializer.Arrival) { a.Rule.Limit = max(a.Rule.Limit, 1) + 1 }
		}},
		{"a limit is ignored", "who may be inside together", func(e *wrongEngine) { e.arrive = func(a *serializer.Arrival) { a.Rule.Limit = 0 } }},
		{"a writer enters beside readers", "readers behind a writer", func(e *wrongEngine) { e.arrive = func(a *serializer.Arrival) { a.Rule.Shared = true } }},
		{"readers pass a writer", "readers behind a writer", func(e *wrongEngine) { e.enter = e.passWriter }},
		{"out of order", "order", func(e *wrongEngine) { e.enter = e.swap }},
		{"out of order by Joined", "order of Joined", func(e *wrongEngine) { e.enter = e.swap }},
		{"out of order, seen by the judge", "many at once", func(e *wrongEngine) { e.turn = oldToken }},
		{"a waiter is lost", "order", func(e *wrongEngine) { e.enter = e.lose }},
		{"a waiter is lost in a crowd", "many at once", func(e *wrongEngine) { e.enter = e.lose }},
		{"a reason of its own", "many at once", func(e *wrongEngine) { e.enter = e.invent }},
		{"a waiter is lost in a history", "random history", func(e *wrongEngine) { e.enter = e.lose }},
		{"a token repeats", "tokens grow", func(e *wrongEngine) { e.turn = sameToken }},
		{"the position is wrong", "order", func(e *wrongEngine) { e.turn = noPosition }},
		{"a second Leave ends another's turn", "leaving twice", func(e *wrongEngine) { e.turn = e.leaveAnother() }},
		{"the timeout is ignored", "timeout", func(e *wrongEngine) { e.arrive = func(a *serializer.Arrival) { a.Timeout = 0 } }},
		{"the timeout is too short", "timeout", func(e *wrongEngine) { e.arrive = func(a *serializer.Arrival) { a.Timeout /= 2 } }},
		{"a refused ticket is left", "timeout", func(e *wrongEngine) { e.enter = e.leaveTicket }},
		{"the ticket of a caller that is gone is left", "caller gone", func(e *wrongEngine) { e.enter = e.leaveTicket }},
		{"MaxWaiting is ignored", "full", func(e *wrongEngine) { e.arrive = func(a *serializer.Arrival) { a.MaxWaiting = 0 } }},
		{"MaxWaiting counts those inside", "full", func(e *wrongEngine) { e.arrive = func(a *serializer.Arrival) { a.MaxWaiting = max(a.MaxWaiting-1, 0) } }},
		{"the latest is dropped", "dropping the oldest", func(e *wrongEngine) { e.arrive = func(a *serializer.Arrival) { a.DropOldest = false } }},
		{"nobody is dropped", "dropping all but the latest", func(e *wrongEngine) { e.arrive = func(a *serializer.Arrival) { a.MaxWaiting = 0 } }},
		{"all are dropped", "whom dropping the oldest concerns", func(e *wrongEngine) {
			e.arrive = func(a *serializer.Arrival) { a.MaxWaiting, a.DropOldest = max(a.MaxWaiting, 1), true }
		}},
		{"too few may wait", "dropping the oldest of several", func(e *wrongEngine) { e.arrive = func(a *serializer.Arrival) { a.MaxWaiting = min(a.MaxWaiting, 2) } }},
		{"dropping the oldest is ignored in a history", "random history", func(e *wrongEngine) { e.arrive = func(a *serializer.Arrival) { a.DropOldest = false } }},
		{"a pause is ignored", "pause", func(e *wrongEngine) { e.pause = func(string, time.Time) error { return nil } }},
		{"a pause is not listed", "pause", func(e *wrongEngine) {
			e.list = func(queues []serializer.QueueState) {
				for i := range queues {
					queues[i].PausedUntil = nil
				}
			}
		}},
		{"a pause does not end", "end of a pause", func(e *wrongEngine) {
			e.pause = func(queue string, _ time.Time) error { return e.Memory.Pause(context.Background(), queue, time.Time{}) }
		}},
		{"a pause ends too soon", "end of a pause", func(e *wrongEngine) {
			e.pause = func(queue string, until time.Time) error {
				return e.Memory.Pause(context.Background(), queue, until.Add(-time.Second))
			}
		}},
		{"groups are not paused", "pause of a group", func(e *wrongEngine) { e.arrive = func(a *serializer.Arrival) { a.Group = "" } }},
		{"all are of the group", "pause of a group", func(e *wrongEngine) { e.arrive = func(a *serializer.Arrival) { a.Group = "{user}_" } }},
		{"a waiter is not superseded during a pause", "refusals during a pause", func(e *wrongEngine) { e.arrive = func(a *serializer.Arrival) { a.DropOldest = false } }},
		{"giving up does nothing", "giving up", func(e *wrongEngine) { e.wait = func(serializer.Wait) serializer.Wait { return idleWait{} } }},
		{"giving up ends the turn", "giving up", func(e *wrongEngine) { e.turn = e.remember; e.wait = e.leaveOnGiveUp }},
		{"done is called twice", "giving up", func(e *wrongEngine) {
			e.done = func(done func(serializer.Turn, error)) func(serializer.Turn, error) {
				return func(turn serializer.Turn, err error) { done(turn, err); done(turn, err) }
			}
		}},
		{"the context is ignored", "caller gone before", func(e *wrongEngine) { e.enter = e.deaf }},
		{"the cause of the context is lost", "caller gone", func(e *wrongEngine) { e.enter = e.vague }},
		{"a waiter cannot be evicted", "evicting a waiter", func(e *wrongEngine) { e.evict = func(string, uint64) error { return nil } }},
		{"Revoke is called twice", "evicting a holder", func(e *wrongEngine) {
			e.arrive = func(a *serializer.Arrival) {
				revoke := a.Revoke
				a.Revoke = func(cause error) { revoke(cause); revoke(cause) }
			}
		}},
		{"Revoke is not called", "evicting a holder", func(e *wrongEngine) { e.arrive = func(a *serializer.Arrival) { a.Revoke = nil } }},
		{"an evicted holder loses its turn at once", "evicting a holder", func(e *wrongEngine) { e.turn = e.remember; e.evict = e.evictAndLeave }},
		{"evicting what is not there succeeds", "evicting nobody", func(e *wrongEngine) { e.evict = func(string, uint64) error { return nil } }},
		{"closing does nothing", "closing", func(e *wrongEngine) { e.close = func() error { return nil } }},
		{"a closing engine does not revoke turns", "closing", func(e *wrongEngine) { e.arrive = func(a *serializer.Arrival) { a.Revoke = nil } }},
		{"a closing engine lets the next one in", "closing", func(e *wrongEngine) { e.turn = e.remember; e.close = e.leaveAndClose }},
		{"a closing engine lets a writer in", "closing before readers", func(e *wrongEngine) { e.turn = e.remember; e.close = e.leaveAndClose }},
		{"Joined is not called", "order of Joined", func(e *wrongEngine) { e.arrive = func(a *serializer.Arrival) { a.Joined = nil } }},
		{"Joined is called too early", "closing", func(e *wrongEngine) { e.arrive = func(a *serializer.Arrival) { a.Joined(); a.Joined = nil } }},
		{"the path changes", "path", func(e *wrongEngine) { e.path = func() string { return fmt.Sprint(e.number.Add(1)) } }},
		{"queues are listed in no order", "list", func(e *wrongEngine) { e.list = slices.Reverse[[]serializer.QueueState] }},
		{"requesters are not listed", "list", func(e *wrongEngine) { e.arrive = func(a *serializer.Arrival) { a.Requester = nil } }},
		{"empty queues are listed", "list is empty in the end", func(e *wrongEngine) { e.enter = e.leaveTicket }},
		{"nobody is counted", "count", func(e *wrongEngine) { e.counts = func(int, int) (int, int) { return 0, 0 } }},
		{"two names are one queue", "queue names", func(e *wrongEngine) { e.arrive = func(a *serializer.Arrival) { a.Queue = strings.TrimSpace(a.Queue) } }},
		{"names end at a zero byte", "queue names", func(e *wrongEngine) {
			e.arrive = func(a *serializer.Arrival) { a.Queue, _, _ = strings.Cut(a.Queue, "\x00") }
		}},
		{"an evicted holder loses its turn at once, in a history", "random history", func(e *wrongEngine) { e.turn = e.remember; e.evict = e.evictAndLeave }},
	} {
		t.Run(c.wrong, func(t *testing.T) {
			t.Parallel()
			i := slices.IndexFunc(cases, func(tc testCase) bool { return tc.name == c.found })
			if i < 0 {
				t.Fatalf("no case %q", c.found)
			}
			complaints := runOn(t, cases[i], func() serializer.Engine {
				e := &wrongEngine{Memory: serializer.NewMemory(serializer.MemoryOptions{})}
				c.make(e)
				return e
			})
			if len(complaints) == 0 {
				t.Errorf("case %q found nothing wrong", c.found)
			}
			t.Logf("%d complaints; the first: %q", len(complaints), complaints[:min(1, len(complaints))])
		})
	}
}

// The engine that the wrong ones are made of is right.
func TestRightEngine(t *testing.T) {
	Run(t, Options{Private: true}, func(testing.TB, int) []serializer.Engine {
		return []serializer.Engine{&wrongEngine{Memory: serializer.NewMemory(serializer.MemoryOptions{})}}
	})
}

// runOn runs a case and returns its complaints.
func runOn(t *testing.T, c testCase, open func() serializer.Engine) (complaints []string) {
	r := &recorder{TB: t}
	defer func() { complaints = r.complaints }()
	o := Options{Private: true, Patience: time.Second / 2}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer r.cleanUp()
		s := c.open(r, o.withDefaults(), func(testing.TB, int) []serializer.Engine { return []serializer.Engine{open()} })
		s.run(c)
	}()
	<-done
	return nil
}

// recorder records the failures of a case, so that the test itself goes on.
type recorder struct {
	testing.TB
	mu         sync.Mutex
	complaints []string
	cleanups   []func()
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.complaints = append(r.complaints, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Logf(string, ...any) {}
func (r *recorder) Helper()             {}
func (r *recorder) Cleanup(f func())    { r.cleanups = append(r.cleanups, f) }

func (r *recorder) cleanUp() {
	for _, f := range slices.Backward(r.cleanups) {
		f()
	}
}

// wrongEngine is a correct engine, except for the fields that are set.
type wrongEngine struct {
	*serializer.Memory
	arrive func(*serializer.Arrival)
	enter  func(context.Context, serializer.Arrival) (serializer.Turn, error)
	turn   func(serializer.Turn) serializer.Turn
	done   func(func(serializer.Turn, error)) func(serializer.Turn, error)
	wait   func(serializer.Wait) serializer.Wait
	path   func() string
	list   func([]serializer.QueueState)
	counts func(inside, waiting int) (int, int)
	evict  func(queue string, token uint64) error
	pause  func(queue string, until time.Time) error
	close  func() error

	number atomic.Int64
	mu     sync.Mutex
	inside map[uint64]serializer.Turn
}

func (e *wrongEngine) Enter(ctx context.Context, a serializer.Arrival) (serializer.Turn, error) {
	if e.arrive != nil {
		e.arrive(&a)
	}
	enter := e.Memory.Enter
	if e.enter != nil {
		enter = e.enter
	}
	turn, err := enter(ctx, a)
	if err == nil && e.turn != nil {
		turn = e.turn(turn)
	}
	return turn, err
}

func (e *wrongEngine) Join(a serializer.Arrival, done func(serializer.Turn, error)) serializer.Wait {
	if e.done != nil {
		done = e.done(done)
	}
	wait := e.Memory.Join(a, func(turn serializer.Turn, err error) {
		if err == nil && e.turn != nil {
			turn = e.turn(turn)
		}
		done(turn, err)
	})
	if e.wait != nil {
		wait = e.wait(wait)
	}
	return wait
}

// idleWait cannot be given up.
type idleWait struct{}

func (idleWait) GiveUp(error) {}

// leaveOnGiveUp ends the turns of all that are inside when one gives up.
func (e *wrongEngine) leaveOnGiveUp(wait serializer.Wait) serializer.Wait {
	return leavingWait{wait, e}
}

type leavingWait struct {
	serializer.Wait
	engine *wrongEngine
}

func (w leavingWait) GiveUp(cause error) {
	w.Wait.GiveUp(cause)
	w.engine.mu.Lock()
	defer w.engine.mu.Unlock()
	for _, turn := range w.engine.inside {
		turn.Leave()
	}
}

func (e *wrongEngine) Path() string {
	if e.path != nil {
		return e.path()
	}
	return e.Memory.Path()
}

func (e *wrongEngine) Queues(ctx context.Context) ([]serializer.QueueState, error) {
	queues, err := e.Memory.Queues(ctx)
	if e.list != nil {
		e.list(queues)
	}
	return queues, err
}

func (e *wrongEngine) Count(queue string) (inside, waiting int) {
	inside, waiting = e.Memory.Count(queue)
	if e.counts != nil {
		inside, waiting = e.counts(inside, waiting)
	}
	return inside, waiting
}

func (e *wrongEngine) Evict(ctx context.Context, queue string, token uint64) error {
	if e.evict != nil {
		return e.evict(queue, token)
	}
	return e.Memory.Evict(ctx, queue, token)
}

func (e *wrongEngine) Pause(ctx context.Context, queue string, until time.Time) error {
	if e.pause != nil {
		return e.pause(queue, until)
	}
	return e.Memory.Pause(ctx, queue, until)
}

func (e *wrongEngine) Close() error {
	if e.close != nil {
		return e.close()
	}
	return e.Memory.Close()
}

// swap sends every third visitor back to the end of its queue.
func (e *wrongEngine) swap(ctx context.Context, a serializer.Arrival) (serializer.Turn, error) {
	turn, err := e.Memory.Enter(ctx, a)
	if err != nil || e.number.Add(1)%3 != 0 {
		return turn, err
	}
	if _, waiting := e.Memory.Count(a.Queue); waiting == 0 {
		return turn, nil
	}
	turn.Leave()
	return e.Memory.Enter(ctx, a)
}

// passWriter lets a reader in where somebody waits, as if that were another reader.
func (e *wrongEngine) passWriter(ctx context.Context, a serializer.Arrival) (serializer.Turn, error) {
	if _, waiting := e.Memory.Count(a.Queue); a.Rule.Shared && waiting > 0 {
		return &changedTurn{nil, uint64(time.Now().UnixMicro()), 1, func() {}}, nil
	}
	return e.Memory.Enter(ctx, a)
}

// lose forgets every third visitor.
func (e *wrongEngine) lose(ctx context.Context, a serializer.Arrival) (serializer.Turn, error) {
	turn, err := e.Memory.Enter(ctx, a)
	if err != nil || e.number.Add(1)%3 != 0 {
		return turn, err
	}
	turn.Leave()
	<-ctx.Done()
	return nil, &serializer.Refused{Reason: serializer.ReasonGone, Queue: a.Queue, Err: context.Cause(ctx)}
}

// invent refuses for a reason that nobody else knows.
func (e *wrongEngine) invent(ctx context.Context, a serializer.Arrival) (serializer.Turn, error) {
	turn, err := e.Memory.Enter(ctx, a)
	if refused, ok := errors.AsType[*serializer.Refused](err); ok {
		refused.Reason = "mood"
	}
	return turn, err
}

// leaveTicket leaves a ticket for each visitor that is refused.
func (e *wrongEngine) leaveTicket(ctx context.Context, a serializer.Arrival) (serializer.Turn, error) {
	turn, err := e.Memory.Enter(ctx, a)
	if err != nil && !errors.Is(err, serializer.ErrClosed) {
		a.Timeout = 0
		go func() { _, _ = e.Memory.Enter(context.Background(), a) }()
	}
	return turn, err
}

// deaf learns a second too late that a visitor is gone.
func (e *wrongEngine) deaf(ctx context.Context, a serializer.Arrival) (serializer.Turn, error) {
	late, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	go func() {
		<-ctx.Done()
		time.Sleep(time.Second)
		cancel(context.Cause(ctx))
	}()
	return e.Memory.Enter(late, a)
}

// vague does not say why a visitor is gone.
func (e *wrongEngine) vague(ctx context.Context, a serializer.Arrival) (serializer.Turn, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	inner, stop := context.WithCancel(context.Background())
	defer context.AfterFunc(ctx, stop)()
	defer stop()
	return e.Memory.Enter(inner, a)
}

// remember keeps turns by their tokens.
func (e *wrongEngine) remember(turn serializer.Turn) serializer.Turn {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.inside == nil {
		e.inside = make(map[uint64]serializer.Turn)
	}
	e.inside[turn.Token()] = turn
	return turn
}

func (e *wrongEngine) evictAndLeave(queue string, token uint64) error {
	err := e.Memory.Evict(context.Background(), queue, token)
	e.mu.Lock()
	defer e.mu.Unlock()
	if turn := e.inside[token]; turn != nil {
		turn.Leave()
	}
	return err
}

func (e *wrongEngine) leaveAndClose() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, turn := range e.inside {
		turn.Leave()
	}
	return e.Memory.Close()
}

// changedTurn is a turn that is wrong in one way.
type changedTurn struct {
	serializer.Turn
	token    uint64
	position int
	leave    func()
}

func (t *changedTurn) Token() uint64 { return t.token }
func (t *changedTurn) Position() int { return t.position }
func (t *changedTurn) Leave()        { t.leave() }

func sameToken(t serializer.Turn) serializer.Turn {
	return &changedTurn{t, 17, t.Position(), t.Leave}
}

// oldToken has tokens that shrink.
func oldToken(t serializer.Turn) serializer.Turn {
	return &changedTurn{t, 1<<63 - t.Token(), t.Position(), t.Leave}
}

func noPosition(t serializer.Turn) serializer.Turn {
	return &changedTurn{t, t.Token(), 0, t.Leave}
}

// leaveAnother has turns whose Leave ends the turn of whoever is inside.
func (e *wrongEngine) leaveAnother() func(serializer.Turn) serializer.Turn {
	var current atomic.Pointer[serializer.Turn]
	return func(t serializer.Turn) serializer.Turn {
		current.Store(&t)
		return &changedTurn{t, t.Token(), t.Position(), func() { (*current.Load()).Leave() }}
	}
}

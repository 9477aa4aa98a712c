package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testjudge"
)

// crowd is what a case of engines works with: engines that share their queues, and the
// callers that the case has sent to them.
type crowd struct {
	testing.TB
	Options
	engines []*serializer.Engine

	mu      sync.Mutex
	callers []*caller
	judges  map[string]*testjudge.Queue[*caller] // by queue
}

// caller is one arrival.
type caller struct {
	crowd   *crowd
	engine  *serializer.Engine
	joins   bool // it arrives by Join instead of Enter
	arrival serializer.Arrival
	hangUp  context.CancelCauseFunc
	revoked chan error

	done chan struct{} // closed when the engine has answered with what follows
	turn serializer.Turn
	err  error
	left bool
}

// onEngines makes a test of stores from one of engines on them.
func onEngines(test func(*crowd)) func(testing.TB, Options, []serializer.Store) {
	return func(t testing.TB, o Options, stores []serializer.Store) {
		c := &crowd{TB: t, Options: o, judges: make(map[string]*testjudge.Queue[*caller])}
		for _, store := range stores {
			c.engines = append(c.engines, serializer.New(store, serializer.Options{}))
		}
		t.Cleanup(c.end)
		test(c)
	}
}

var errHungUp = errors.New("hung up")

// on returns an engine. The numbers wrap around, so that cases may count callers.
func (c *crowd) on(i int) *serializer.Engine { return c.engines[i%len(c.engines)] }

// arrival returns an arrival in a queue.
func (c *crowd) arrival(text string) serializer.Arrival {
	return serializer.Arrival{Queue: serializer.QueueName(text), Timeout: 2 * c.Patience}
}

// start sends a caller to the i-th engine. Of each engine's callers, every other one joins.
func (c *crowd) start(i int, a serializer.Arrival) *caller {
	ctx, cancel := context.WithCancelCause(context.Background())
	v := &caller{crowd: c, engine: c.on(i), hangUp: cancel, revoked: make(chan error, 16), done: make(chan struct{})}
	v.joins = i/len(c.engines)%2 == 1
	a.Revoke = func(cause error) { v.revoked <- cause }
	c.mu.Lock()
	c.callers = append(c.callers, v)
	a.Client = clientOf(len(c.callers))
	c.mu.Unlock()
	v.arrival = a
	go v.arrive(ctx)
	return v
}

// arrive gets the engine's answer.
func (v *caller) arrive(ctx context.Context) {
	defer close(v.done)
	if v.joins {
		v.turn, v.err = v.enterByJoin(ctx)
	} else {
		v.turn, v.err = v.engine.Enter(ctx, v.arrival)
	}
	if v.err == nil {
		v.crowd.judge(v.arrival.Queue, func(q *testjudge.Queue[*caller]) {
			if overlap, inversion := q.Enter(v); overlap != nil || inversion != nil {
				v.crowd.Errorf("%v has entered; inside together are now %v, and in the wrong order %v", v, overlap, inversion)
			}
		})
	}
}

// judge reports to the judge of a queue.
func (c *crowd) judge(queue string, report func(*testjudge.Queue[*caller])) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.judges[queue] == nil {
		c.judges[queue] = new(testjudge.Queue[*caller])
	}
	report(c.judges[queue])
}

// enterByJoin is Enter by means of Join.
func (v *caller) enterByJoin(ctx context.Context) (turn serializer.Turn, err error) {
	answered := make(chan struct{})
	wait := v.engine.Join(v.arrival, func(t serializer.Turn, e error) {
		turn, err = t, e
		close(answered)
	})
	defer context.AfterFunc(ctx, func() { wait.GiveUp(context.Cause(ctx)) })()
	<-answered
	return turn, err
}

func (v *caller) String() string {
	return fmt.Sprintf("caller %s of queue %q by %+v", v.arrival.Client, v.arrival.Queue, v.arrival.Rule)
}

// Judged is the caller's turn.
func (v *caller) Judged() testjudge.Turn {
	return testjudge.Turn{Rule: v.arrival.Rule, Token: v.turn.Token()}
}

// got describes what the caller has got.
func (v *caller) got() string {
	select {
	case <-v.done:
	default:
		return "waits"
	}
	if refused, ok := errors.AsType[*serializer.Refused](v.err); ok {
		return string(refused.Reason)
	}
	if v.left {
		return "left"
	}
	return enteredAt(v.turn.Position())
}

func enteredAt(position int) string { return fmt.Sprint("entered at ", position) }

// token is the token of the caller's ticket, as its engine lists it; 0 if it does not.
func (v *caller) token() (token uint64) {
	v.crowd.Helper()
	for _, q := range v.crowd.list(v.engine) {
		for _, t := range q.Tickets {
			if t.Client == v.arrival.Client {
				token, _ = strconv.ParseUint(t.Token, 10, 64)
			}
		}
	}
	return token
}

// leave ends the caller's turn.
func (v *caller) leave() {
	v.left = true
	v.crowd.judge(v.arrival.Queue, func(q *testjudge.Queue[*caller]) { q.Leave(func(other *caller) bool { return other == v }) })
	v.turn.Leave()
}

// list is what an engine lists.
func (c *crowd) list(e *serializer.Engine) []serializer.QueueState {
	c.Helper()
	queues, err := e.Queues(context.Background())
	if err != nil {
		c.Fatalf("listing queues: %v", err)
	}
	return queues
}

// end ends all waits and turns, finds tickets that are left, and closes the engines.
func (c *crowd) end() {
	for _, v := range c.callers {
		v.hangUp(errHungUp)
	}
	for _, v := range c.callers {
		select {
		case <-v.done:
			if v.turn != nil && !v.left {
				v.leave()
			}
		case <-time.After(c.Patience):
			c.Errorf("%v did not return though its context is done", v)
			return // closing could wait for ever, too
		}
	}
	for _, e := range c.engines {
		c.until(c, "no ticket is left", func() bool {
			queues, err := e.Queues(context.Background())
			return err != nil || len(queues) == 0 // a closed engine does not list
		})
		if err := e.Close(); err != nil {
			c.Errorf("closing the engine: %v", err)
		}
	}
}

// A caller that does not wait enters a queue that is free, whichever engine had it before, and no
// other.
func engineNoWait(c *crowd) {
	a := c.arrival("a_")
	a.NoWait = true
	for i := range 20 {
		holder, other := c.start(i, a), c.on(i+1)
		<-holder.done
		refused := c.start(i+1, a)
		<-refused.done
		if holder.got() != enteredAt(0) || !errors.Is(refused.err, serializer.ErrTimeout) {
			c.Fatalf("the first %s; the second %s", holder.got(), refused.got())
		}
		holder.leave()
		c.until(c, "the queue is free", func() bool { return len(c.list(other)) == 0 })
	}
}

// If turns last for a time at least, at most as many callers as may be inside
// together enter within that time, whichever engines they use.
func engineHeld(c *crowd) {
	const callers, held = 12, 20 * time.Millisecond
	for _, limit := range []int{1, 3} {
		a := c.arrival("held_" + strconv.Itoa(limit))
		a.Rule.Limit = limit
		entries := make([]time.Time, callers)
		var all sync.WaitGroup
		for i := range entries {
			v := c.start(i, a)
			all.Go(func() {
				<-v.done
				if v.err != nil {
					c.Errorf("%v: %v", v, v.err)
					return
				}
				entries[i] = time.Now()
				time.Sleep(held)
				v.leave()
			})
		}
		all.Wait()
		slices.SortFunc(entries, time.Time.Compare)
		least := time.Hour
		for i := range entries[limit:] {
			least = min(least, entries[i+limit].Sub(entries[i]))
		}
		c.Logf("%d entered %v after the first of them or later, with turns of %v", limit+1, least, held)
		if least < held {
			c.Errorf("%d entered within %v; expected at most %d within %v", limit+1, least, limit, held)
		}
	}
}

// Many callers come, wait, give up, are evicted, pause the queue and leave at once. The judge
// looks at each that enters. Each gets its turn or a refusal that it asked for, and only
// once. In the end, nothing is left.
func engineCrowd(c *crowd) {
	c.Logf("seed %d", c.Seed)
	var group sync.WaitGroup
	for i := range 24 {
		r := rand.New(rand.NewPCG(c.Seed, uint64(i)))
		group.Go(func() {
			for n := range 25 {
				if !c.send(i+n, r) {
					return
				}
			}
		})
	}
	group.Wait()
}

// send sends one caller of a crowd. It reports whether the engine has answered.
func (c *crowd) send(i int, r *rand.Rand) bool {
	a := c.arrival(pick(r, "a_", "a_", "b_"))
	a.Rule = pick(r, someRules...)
	allowed := []error{serializer.ErrEvicted}
	hangUp := c.Patience // never
	switch moment := time.Duration(1+r.IntN(20)) * pick(r, 20*time.Microsecond, time.Millisecond); r.IntN(10) {
	case 0:
		a.Timeout = moment
		allowed = append(allowed, serializer.ErrTimeout)
	case 1:
		hangUp = moment
		allowed = append(allowed, errHungUp)
	case 2:
		a.MaxWaiting = 1 + r.IntN(8)
		allowed = append(allowed, serializer.ErrFull)
	case 3:
		a.MaxWaiting, a.DropOldest = 1+r.IntN(8), true
		allowed = append(allowed, serializer.ErrSuperseded)
	case 4:
		a.NoWait = true
		allowed = append(allowed, serializer.ErrTimeout)
	}
	v := c.start(i, a)
	select {
	case <-v.done:
	case <-time.After(hangUp):
		v.hangUp(errHungUp)
		<-v.done
	}
	if v.err != nil {
		if !slices.ContainsFunc(allowed, func(err error) bool { return errors.Is(v.err, err) }) {
			c.Errorf("%v: %v; expected its turn, or one of %v", v, v.err, allowed)
			return false
		}
		return true
	}
	// One that may not be inside at the same time should meet it.
	time.Sleep(time.Duration(r.IntN(300)) * time.Microsecond)
	if r.IntN(10) == 0 { // itself, or nobody, or the one behind
		_ = c.on(i+r.IntN(2)).Evict(context.Background(), a.Queue, v.turn.Token()+uint64(r.IntN(2)))
	}
	if r.IntN(20) == 0 {
		_ = c.on(i).Pause(context.Background(), a.Queue, time.Now().Add(2*time.Millisecond))
	}
	v.leave()
	return true
}

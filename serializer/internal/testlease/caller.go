// Package testlease tests what all stores with leases promise, each against its own server.
package testlease

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testjudge"
)

// Queue is the one that callers come to, unless an arrival says otherwise.
const Queue = "a_"

// Long is for faults that take their time.
var Long = flag.Bool("long", false, "with more faults, and longer queues")

// Must ends a test that cannot go on.
var Must = testprocess.Must

// Second drops an answer of which only the error is of interest.
func Second[T any](_ T, err error) error { return err }

// NewEngine makes an engine on a store, as a process does, and closes it at the end of the test. It does
// not wait for a server.
func NewEngine(t testing.TB, store serializer.Store) *serializer.Engine {
	e := serializer.New(store, serializer.Options{})
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// Ready waits until the engine has a lease. On a busy machine, a server may be so slow that the first
// attempt fails; until the next one, arrivals are refused.
func Ready(t testing.TB, e *serializer.Engine) *serializer.Engine {
	t.Helper()
	wait.Eventually(t, "the engine has a lease", func() error { return Second(e.Queues(t.Context())) })
	return e
}

// Arrival is one at a queue that waits no longer than that.
func Arrival(queue string, timeout time.Duration) serializer.Arrival {
	return serializer.Arrival{Queue: queue, Client: "192.0.2.1:36794", Timeout: timeout}
}

// Caller is one that waits or is inside. All but Revoked is set when its wait is over.
type Caller struct {
	Turn    serializer.Turn
	Err     error
	Entered time.Time
	Revoked chan error
	over    chan struct{}
}

// Arrive starts an arrival.
func Arrive(e *serializer.Engine, a serializer.Arrival) *Caller {
	c := &Caller{over: make(chan struct{}), Revoked: make(chan error, 1)}
	revoke := a.Revoke
	a.Revoke = func(err error) {
		if revoke != nil {
			revoke(err)
		}
		c.Revoked <- err
	}
	go func() {
		defer close(c.over)
		c.Turn, c.Err = e.Enter(context.Background(), a)
		c.Entered = time.Now()
	}()
	return c
}

// Join starts an arrival, and returns once it has a ticket. The default comes to [Queue].
func Join(t testing.TB, e *serializer.Engine, as ...serializer.Arrival) *Caller {
	t.Helper()
	a := append(as, Arrival(Queue, wait.Patience))[0]
	count := func() int {
		inside, waiting := e.Count(a.Queue)
		return inside + waiting
	}
	before, c := count(), Arrive(e, a)
	wait.Until(t, "the arrival has a ticket", func() bool { return count() > before || c.Over() })
	return c
}

// Enter waits for a turn. The default is as with [Join].
func Enter(t testing.TB, e *serializer.Engine, as ...serializer.Arrival) *Caller {
	t.Helper()
	c := Arrive(e, append(as, Arrival(Queue, wait.Patience))[0])
	c.Wait(t)
	return c
}

// EnterSoon enters as soon as that is possible, leaves, and returns the token.
func EnterSoon(t testing.TB, e *serializer.Engine) (token uint64) {
	t.Helper()
	wait.Eventually(t, "arrivals enter", func() error {
		c := Arrive(e, Arrival(Queue, 10*time.Second))
		if <-c.over; c.Err == nil {
			token = c.Turn.Token()
			c.Turn.Leave()
		}
		return c.Err
	})
	return token
}

// Over reports whether the wait has ended.
func (c *Caller) Over() bool {
	select {
	case <-c.over:
		return true
	default:
		return false
	}
}

// End waits for the end of the wait, and returns the refusal, if it is one.
func (c *Caller) End(t testing.TB) error {
	t.Helper()
	wait.Until(t, "the wait has ended", c.Over)
	return c.Err
}

// Wait waits for the turn.
func (c *Caller) Wait(t testing.TB) serializer.Turn {
	t.Helper()
	Must(t, c.End(t))
	return c.Turn
}

// LeaveWithin waits for the turn, and leaves. The caller has to have entered in time after a moment.
func (c *Caller) LeaveWithin(t testing.TB, since time.Time, most time.Duration) {
	t.Helper()
	c.Wait(t).Leave()
	took := c.Entered.Sub(since)
	t.Logf("the next one entered after %s", took.Round(100*time.Millisecond))
	if took > most {
		t.Errorf("the next one entered after %s; expected at most %s", took, most)
	}
}

// WantRevoked waits until the turn is revoked for a cause, and returns all that is said about it.
func (c *Caller) WantRevoked(t testing.TB, cause error) (err error) {
	t.Helper()
	wait.Until(t, "the holder's turn is revoked", func() bool { return len(c.Revoked) > 0 })
	if err = <-c.Revoked; !errors.Is(err, cause) {
		t.Errorf("revoked with %v; expected %v", err, cause)
	}
	return err
}

// WantHeld fails if the turn was revoked.
func (c *Caller) WantHeld(t testing.TB) {
	t.Helper()
	if len(c.Revoked) > 0 {
		t.Errorf("revoked: %v", <-c.Revoked)
	}
}

// WantRefused waits until arrivals are refused because of storage, with a text.
func WantRefused(t testing.TB, e *serializer.Engine, text string) {
	t.Helper()
	wait.Eventually(t, "arrivals are refused with "+text, func() error {
		c := Arrive(e, Arrival(Queue, time.Second))
		if <-c.over; c.Err == nil {
			c.Turn.Leave()
			return errors.New("one has entered")
		}
		if serializer.ReasonOf(c.Err) != serializer.ReasonStorage || !strings.Contains(c.Err.Error(), text) {
			return c.Err
		}
		return nil
	})
}

// WantGreater compares a token with an earlier one, and returns it.
func WantGreater(t testing.TB, token, last uint64) uint64 {
	t.Helper()
	if token <= last {
		t.Errorf("token %d after %d", token, last)
	}
	return token
}

// Clients take turns in a queue again and again, until End. Their judge hears who is inside.
type Clients struct {
	// What can be read after End.
	Refused []error
	Wrong   error           // the first thing that the judge found
	First   hold            // the one that was inside first
	Gaps    []time.Duration // times between one leave and the next entry

	group sync.WaitGroup
	over  atomic.Bool

	mu    sync.Mutex
	judge testjudge.Queue[*hold]
	turns int
	fault string    // the last one of a history
	left  time.Time // the last one that did
}

// hold is a turn of a client. It is over when the client leaves, or the queue ceases to vouch for it.
type hold struct {
	testjudge.Turn
	Entered time.Time
	over    bool
}

// Judged is the turn.
func (h *hold) Judged() testjudge.Turn { return h.Turn }

func (h *hold) String() string { return fmt.Sprintf("%+v since %s", h.Turn, h.Entered) }

// Come has n clients of each engine come to a queue.
func Come(queue string, n int, engines ...*serializer.Engine) *Clients {
	return come(Arrival(queue, 30*time.Second), n, engines...)
}

func come(a serializer.Arrival, n int, engines ...*serializer.Engine) *Clients {
	c := new(Clients)
	for _, e := range engines {
		for range n {
			c.group.Go(func() {
				for !c.over.Load() {
					c.takeTurn(e, a)
				}
			})
		}
	}
	return c
}

// takeTurn enters and leaves. A turn that was revoked before its client knew of it counts for nothing.
func (c *Clients) takeTurn(e *serializer.Engine, a serializer.Arrival) {
	h := new(hold)
	a.Revoke = func(error) { c.locked(func() { c.leave(h) }) }
	turn, err := e.Enter(context.Background(), a)
	if err != nil {
		c.locked(func() { c.Refused = append(c.Refused, err) })
		time.Sleep(50 * time.Millisecond)
		return
	}
	h.Turn = testjudge.Turn{Rule: a.Rule, Token: turn.Token(), Slots: a.Slots != nil, Slot: turn.Slot()}
	c.locked(func() { c.enter(h) })
	time.Sleep(rand.N(20 * time.Millisecond)) // most of the time somebody is inside, and the processors are free
	c.locked(func() { c.leave(h) })
	turn.Leave()
}

func (c *Clients) enter(h *hold) {
	if h.over {
		return
	}
	if h.Entered = time.Now(); c.turns == 0 {
		c.First = *h
	} else {
		c.Gaps = append(c.Gaps, h.Entered.Sub(c.left))
	}
	c.turns++
	if overlap, inversion := c.judge.Enter(h); c.Wrong == nil && (overlap != nil || inversion != nil) {
		c.Wrong = fmt.Errorf("at turn %d, during or after %q, there were inside together %v, and in the wrong order %v", c.turns, c.fault, overlap, inversion)
	}
}

func (c *Clients) leave(h *hold) {
	if !h.over {
		h.over, c.left = true, time.Now()
		c.judge.Leave(func(other *hold) bool { return other == h })
	}
}

// during notes a fault that begins.
func (c *Clients) during(fault string) { c.locked(func() { c.fault = fault }) }

func (c *Clients) locked(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do()
}

// Turns is how many there were until now.
func (c *Clients) Turns() (n int) {
	c.locked(func() { n = c.turns })
	return n
}

// End waits until all have left.
func (c *Clients) End() {
	c.over.Store(true)
	c.group.Wait()
}

// Crowd has n callers of two processes wait, and one of a process that comes later. Each of the n comes
// again when it leaves. All get their turns, in order. tickets counts those of the server. The leases should
// be long: a busy machine may need a minute.
func Crowd(t *testing.T, open func() *serializer.Engine, tickets func() int, n int) {
	t.Helper()
	engines := []*serializer.Engine{open(), open()}
	for _, e := range engines {
		EnterSoon(t, e)
	}
	var turns sync.WaitGroup
	var mu sync.Mutex
	var tokens []uint64
	var again func(e *serializer.Engine, times int)
	again = func(e *serializer.Engine, times int) {
		e.Join(Arrival(Queue, 0), func(turn serializer.Turn, err error) {
			defer turns.Done()
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			tokens = append(tokens, turn.Token())
			mu.Unlock()
			turn.Leave()
			if times > 1 {
				again(e, times-1)
			}
		})
	}
	holder := Enter(t, engines[0])
	turns.Add(2 * n)
	for i := range n {
		again(engines[i%2], 2)
	}
	wait.Until(t, "all wait", func() bool { return tickets() == n+1 })
	late := Join(t, open(), Arrival(Queue, 0))
	holder.Turn.Leave()
	<-late.over
	late.Wait(t).Leave()
	turns.Wait()
	if !slices.IsSorted(tokens) || len(slices.Compact(slices.Clone(tokens))) != 2*n {
		t.Errorf("%d turns of %d, in order: %t", len(tokens), 2*n, slices.IsSorted(tokens))
	}
	if late.Turn.Token() <= tokens[n-1] || late.Turn.Token() >= tokens[n] || late.Turn.Position() != n+1 {
		t.Errorf("the last one has %d between %d and %d, and position %d", late.Turn.Token(), tokens[n-1], tokens[n], late.Turn.Position())
	}
}

// HandOver measures for how long nobody is inside while others wait: 8 clients, of one process or
// several. Each holds for a millisecond on average.
func HandOver(b *testing.B, open func() *serializer.Engine) {
	for _, processes := range []int{1, 2, 8} {
		b.Run(fmt.Sprintf("processes=%d", processes), func(b *testing.B) {
			var engines []*serializer.Engine
			for range processes {
				engines = append(engines, open())
			}
			b.ResetTimer()
			clients := Come(Queue, 8/processes, engines...)
			wait.Until(b, "all had turns", func() bool { return clients.Turns() > b.N })
			clients.End()
			gaps := slices.Sorted(slices.Values(clients.Gaps))
			b.ReportMetric(float64(gaps[len(gaps)/2])/float64(time.Microsecond), "median-µs")
			b.ReportMetric(float64(gaps[len(gaps)*99/100])/float64(time.Microsecond), "p99-µs")
		})
	}
}

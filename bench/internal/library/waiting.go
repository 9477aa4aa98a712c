package library

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/bench/internal/proc"
	"github.com/orderly-http/caddy-orderly/bench/internal/results"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// Queueing is a queue that always has a number of callers waiting.
type Queueing struct {
	Engine
	Waiting int
	Turns   int           // at most
	Limit   time.Duration // at most
}

// Turning is what the turns of such a queue cost.
type Turning struct {
	Turns    int
	Cost     time.Duration // of a turn: a ticket made, the turn handed on, the ticket gone
	Work     time.Duration // of all processors for that
	HandOver time.Duration // from a Leave to the return of the next Enter, median
	Late     time.Duration // the 99th percentile of that
}

func init() {
	proc.Role("queueing", func(ctx context.Context, q Queueing) (t Turning, err error) {
		err = q.with(func(e serializer.Engine) error {
			t, err = q.turning(ctx, e)
			return err
		})
		return t, err
	})
}

// Run measures it in a process of its own.
func (q Queueing) Run(ctx context.Context) (Turning, error) {
	return proc.Ask[Turning](ctx, "queueing", q, nil)
}

// carousel is a queue in which every leaving holder queues again.
type carousel struct {
	engine serializer.Engine
	start  chan struct{}
	done   chan error
	riding atomic.Int64 // callers on their way
	stop   atomic.Bool

	mu     sync.Mutex      // for an engine that lets two inside
	passed []time.Duration // from a Leave to the next entry
	left   time.Time       // when the last one left
	turns  int
	last   time.Time // when the last turn began
}

func (q Queueing) turning(ctx context.Context, engine serializer.Engine) (t Turning, err error) {
	c := &carousel{
		engine: engine,
		start:  make(chan struct{}),
		done:   make(chan error, q.Waiting+1),
		passed: make([]time.Duration, 0, q.Turns),
	}
	for range q.Waiting + 1 {
		go func() { c.done <- c.ride(ctx, q.Turns) }()
	}
	if err := c.fill(ctx, q); err != nil {
		return t, err
	}
	began, worked := time.Now(), processorTime()
	limit := time.AfterFunc(q.Limit, func() { c.stop.Store(true) })
	defer limit.Stop()
	close(c.start)
	// The first that is done has the last turn. The others end with the
	// process.
	if err := <-c.done; err != nil {
		return t, err
	}
	worked = processorTime() - worked
	t = c.report(began)
	t.Work = worked / time.Duration(max(1, t.Turns))
	return t, nil
}

// fill returns when all are in the queue.
func (c *carousel) fill(ctx context.Context, q Queueing) error {
	for ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond)
		states, err := c.engine.Queues(ctx)
		if err != nil {
			return fmt.Errorf("looking at the queue: %w", err)
		}
		if len(states) > 0 && states[0].Inside+states[0].Waiting == q.Waiting+1 {
			return nil
		}
		if states == nil && q.Engine.Engine != File && int(c.riding.Load()) == q.Waiting+1 {
			// These engines do not tell. All are on their way in.
			time.Sleep(200 * time.Millisecond)
			return nil
		}
	}
	return ctx.Err()
}

// ride takes turns until there were enough.
func (c *carousel) ride(ctx context.Context, most int) error {
	c.riding.Add(1)
	for {
		turn, err := c.engine.Enter(ctx, arrival)
		if err != nil {
			return err
		}
		entered := time.Now()
		<-c.start
		over := c.note(entered, most)
		turn.Leave()
		if over {
			return nil
		}
	}
}

// note counts a turn, unless there were enough.
func (c *carousel) note(entered time.Time, most int) (over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if over = c.stop.Load() || c.turns >= most; !over {
		if c.turns > 0 {
			c.passed = append(c.passed, entered.Sub(c.left))
		}
		c.turns++
		c.last = entered
	}
	c.left = time.Now()
	return over
}

func (c *carousel) report(began time.Time) Turning {
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.Sort(c.passed)
	return Turning{
		Turns:    c.turns,
		Cost:     c.last.Sub(began) / time.Duration(max(1, c.turns-1)),
		HandOver: time.Duration(results.Quantile(c.passed, 0.5)),
		Late:     time.Duration(results.Quantile(c.passed, 0.99)),
	}
}

// processorTime is how long this process has been at work, on all processors.
// Unlike the clock, it does not count what other programs do meanwhile.
func processorTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

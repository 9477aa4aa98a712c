package library

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
	"github.com/orderly-http/caddy-orderly/bench/internal/machine"
	"github.com/orderly-http/caddy-orderly/bench/internal/proc"
)

// Queueing is a queue that always has a number of callers waiting.
type Queueing struct {
	Engine
	Waiting int
	Turns   int           // at most
	Limit   time.Duration // at most
}

func init() {
	proc.Role("queueing", func(ctx context.Context, q Queueing) (values figures.Values, err error) {
		err = q.with(func(e engine) error {
			values, err = q.turn(ctx, e)
			return err
		})
		return values, err
	})
}

// Run measures what a turn costs, in a process of its own.
func (q Queueing) Run(ctx context.Context) (figures.Values, error) {
	return proc.Ask[figures.Values](ctx, "queueing", q, proc.Tracer{})
}

// carousel is a queue in which every leaving holder queues again.
type carousel struct {
	Queueing
	engine engine
	start  chan struct{}
	began  time.Time

	mu     sync.Mutex      // for an engine that lets two inside
	passed []time.Duration // from a Leave to the return of the next Enter
	left   time.Time       // when the last one left
	last   time.Time       // when the last turn began
	turns  int
}

func (q Queueing) turn(ctx context.Context, e engine) (figures.Values, error) {
	c := &carousel{Queueing: q, engine: e, start: make(chan struct{}), passed: make([]time.Duration, 0, q.Turns)}
	done := make(chan error, q.Waiting+1)
	for range q.Waiting + 1 {
		go func() { done <- c.ride(ctx) }()
	}
	if err := c.fill(ctx); err != nil {
		return nil, err
	}
	var worked time.Duration
	c.began, worked = time.Now(), machine.ProcessorTime()
	close(c.start)
	// The first that is done has the last turn. The others end with the process.
	if err := <-done; err != nil {
		return nil, err
	}
	return c.values(machine.ProcessorTime() - worked), nil
}

// fill returns when all are in the queue.
func (c *carousel) fill(ctx context.Context) error {
	for ctx.Err() == nil {
		time.Sleep(50 * time.Millisecond)
		states, err := c.engine.Queues(ctx)
		if err != nil {
			return fmt.Errorf("looking at the queue: %w", err)
		}
		if len(states) > 0 && states[0].Inside+states[0].Waiting == c.Waiting+1 {
			return nil
		}
	}
	return ctx.Err()
}

// ride takes turns until there were enough.
func (c *carousel) ride(ctx context.Context) error {
	for {
		turn, err := c.engine.Enter(ctx, arrival)
		if err != nil {
			return err
		}
		entered := time.Now()
		<-c.start
		over := c.note(entered)
		turn.Leave()
		if over {
			return nil
		}
	}
}

// note counts a turn, unless there were enough.
func (c *carousel) note(entered time.Time) (over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if over = c.turns >= c.Turns || entered.Sub(c.began) > c.Limit; !over {
		if c.turns > 0 {
			c.passed = append(c.passed, entered.Sub(c.left))
		}
		c.turns++
		c.last = entered
	}
	c.left = time.Now()
	return over
}

// values are empty if there was no second turn in time: then nobody knows what one takes.
func (c *carousel) values(worked time.Duration) figures.Values {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.turns < 2 {
		return figures.Values{}
	}
	values := passes(c.passed)
	values[figures.Turn] = figures.Microseconds(c.last.Sub(c.began)) / float64(max(1, c.turns-1))
	values[figures.TurnWork] = figures.Microseconds(worked) / float64(max(1, c.turns))
	return values
}

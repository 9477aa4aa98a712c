package test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// crowd is a number of callers of engines on one cluster, and what they have
// seen inside.
type crowd struct {
	callers sync.WaitGroup
	inside  atomic.Int64
	last    atomic.Uint64

	turns, overlaps, inversions atomic.Int64
}

// comes starts callers of an engine that take a number of turns each.
func (c *crowd) comes(t *testing.T, e *engine, callers, turns int, hold time.Duration) {
	for range callers {
		c.callers.Go(func() {
			for range turns {
				turn, err := e.Enter(context.Background(), arrival("a_"))
				if err != nil {
					t.Error(err)
					return
				}
				if c.inside.Add(1) > 1 {
					c.overlaps.Add(1)
				}
				if c.last.Swap(turn.Token()) >= turn.Token() {
					c.inversions.Add(1)
				}
				time.Sleep(hold)
				c.inside.Add(-1)
				c.turns.Add(1)
				turn.Leave()
			}
		})
	}
}

// wantOrder waits for all callers, and fails the test unless they took that many
// turns, one at a time and in order.
func (c *crowd) wantOrder(t *testing.T, turns int) {
	t.Helper()
	c.callers.Wait()
	if c.overlaps.Load() != 0 || c.inversions.Load() != 0 || c.turns.Load() != int64(turns) {
		t.Errorf("%d overlaps, %d inversions in %d turns of %d", c.overlaps.Load(), c.inversions.Load(), c.turns.Load(), turns)
	}
}

package test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// crowd is callers of engines on one cluster that come to one queue again and again, and
// what they have seen.
type crowd struct {
	callers sync.WaitGroup
	over    atomic.Bool

	mu                   sync.Mutex
	inside               int
	overlaps, inversions int
	entries              []entry
	refused              []error
}

type entry struct {
	at    time.Time
	token uint64
}

// comes starts callers of an engine, which take a number of turns each; 0 means that they
// come until the end.
func (c *crowd) comes(e *testlease.Engine, callers, turns int, hold, pause time.Duration) {
	for range callers {
		c.callers.Go(func() {
			for i := 0; !c.over.Load() && (turns == 0 || i < turns); i++ {
				turn, err := e.Enter(context.Background(), testlease.Arrival("a_", time.Minute))
				if err != nil {
					c.note(func() { c.refused = append(c.refused, err) })
				} else {
					c.note(func() { c.enter(turn.Token()) })
					time.Sleep(hold)
					c.note(func() { c.inside-- })
					turn.Leave()
				}
				time.Sleep(pause)
			}
		})
	}
}

func (c *crowd) note(what func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	what()
}

func (c *crowd) enter(token uint64) {
	if c.inside++; c.inside > 1 {
		c.overlaps++
	}
	if n := len(c.entries); n > 0 && c.entries[n-1].token >= token {
		c.inversions++
	}
	c.entries = append(c.entries, entry{time.Now(), token})
}

// end waits for all callers.
func (c *crowd) end() {
	c.over.Store(true)
	c.callers.Wait()
}

// wantOrder waits until all callers have taken their turns, one at a time and in order.
func (c *crowd) wantOrder(t *testing.T, turns int) {
	t.Helper()
	c.callers.Wait()
	if c.overlaps != 0 || c.inversions != 0 || len(c.entries) != turns || len(c.refused) != 0 {
		t.Errorf("%d overlaps, %d inversions in %d turns of %d; refused: %v", c.overlaps, c.inversions, len(c.entries), turns, c.refused)
	}
}

// more waits until so many more have entered.
func (c *crowd) more(t *testing.T, n int, when string) {
	t.Helper()
	most := -1
	wait.Eventually(t, "visitors come "+when, func() (err error) {
		c.note(func() {
			if most < 0 {
				most = len(c.entries) + n
			}
			if len(c.entries) <= most {
				err = fmt.Errorf("%d entered; refused: %v", len(c.entries), c.refused)
			}
		})
		return err
	})
}

// gap is the longest time without an entry.
func (c *crowd) gap(start, end time.Time) (gap time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range append(slices.Clone(c.entries), entry{at: end}) {
		if e.at.After(start) && !e.at.After(end) {
			gap = max(gap, e.at.Sub(start))
			start = e.at
		}
	}
	return gap
}

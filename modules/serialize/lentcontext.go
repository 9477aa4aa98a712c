package serialize

import (
	"context"
	"sync/atomic"
	"time"
)

// lentContext is the context of a request: one while the next handlers run, and another
// one afterwards.
type lentContext struct {
	inside, outer context.Context
	over          atomic.Bool
}

func (c *lentContext) current() context.Context {
	if c.over.Load() {
		return c.outer
	}
	return c.inside
}

// Deadline implements [context.Context].
func (c *lentContext) Deadline() (time.Time, bool) { return c.current().Deadline() }

// Done implements [context.Context].
func (c *lentContext) Done() <-chan struct{} { return c.current().Done() }

// Err implements [context.Context].
func (c *lentContext) Err() error { return c.current().Err() }

// Value implements [context.Context].
func (c *lentContext) Value(key any) any { return c.current().Value(key) }

// Interface guards
var _ context.Context = (*lentContext)(nil)

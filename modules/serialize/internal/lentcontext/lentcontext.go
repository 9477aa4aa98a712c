// Package lentcontext gives a request another context while handlers work on it.
package lentcontext

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Serve runs a handler with another context of the request. It changes the
// request in place: Caddy's placeholders know it by its address, and would not
// see what the handlers do to a copy.
//
// It does not change the request back. A proxy's transport may still read the body,
// and then the request, when the handler has returned.
func (c *Context) Serve(ctx context.Context, w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	c.inside, c.outer = ctx, r.Context()
	defer c.over.Store(true)
	c.enter(r)
	return next.ServeHTTP(w, r)
}

// enter gives a request this context. It makes a copy of the request, which is not to be
// on the stack while the handler runs.
//
//go:noinline
func (c *Context) enter(r *http.Request) { *r = *r.WithContext(c) }

// Replace gives a request another context, once Serve has returned.
func Replace(ctx context.Context, r *http.Request) {
	if lent, ok := r.Context().(*Context); ok && lent.over.Load() {
		lent.later.Store(&ctx)
		return
	}
	*r = *r.WithContext(ctx)
}

// Context is one context while a handler works, and another one afterwards.
type Context struct {
	inside, outer context.Context
	over          atomic.Bool
	later         atomic.Pointer[context.Context] // instead of outer, or nil
}

func (c *Context) current() context.Context {
	if !c.over.Load() {
		return c.inside
	}
	if later := c.later.Load(); later != nil {
		return *later
	}
	return c.outer
}

// Deadline implements [context.Context].
func (c *Context) Deadline() (time.Time, bool) { return c.current().Deadline() }

// Done implements [context.Context].
func (c *Context) Done() <-chan struct{} { return c.current().Done() }

// Err implements [context.Context].
func (c *Context) Err() error { return c.current().Err() }

// Value implements [context.Context].
func (c *Context) Value(key any) any { return c.current().Value(key) }

// Outliving has the values of a context, and does not end with it. It is what
// [context.WithoutCancel] makes, in the memory of a visit. It is for a parent only: if
// asked for a cause, it would return that of the other context.
type Outliving struct{ Values context.Context }

// Deadline implements [context.Context].
func (*Outliving) Deadline() (deadline time.Time, ok bool) { return deadline, false }

// Done implements [context.Context].
func (*Outliving) Done() <-chan struct{} { return nil }

// Err implements [context.Context].
func (*Outliving) Err() error { return nil }

// Value implements [context.Context].
func (c *Outliving) Value(key any) any { return c.Values.Value(key) }

// Interface guards
var (
	_ context.Context = (*Context)(nil)
	_ context.Context = (*Outliving)(nil)
)

package serialize

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// serve runs a handler with another context of the request. It changes the
// request in place: Caddy's placeholders know it by its address, and would not
// see what the handlers do to a copy.
//
// It does not change the request back. A proxy's transport may still read the body,
// and then the request, when the handler has returned.
func (c *lentContext) serve(ctx context.Context, w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	c.inside, c.outer = ctx, r.Context()
	defer c.over.Store(true)
	c.enter(r)
	return next.ServeHTTP(w, r)
}

// enter gives a request this context. It makes a copy of the request, which is not to be
// on the stack while the handler runs.
//
//go:noinline
func (c *lentContext) enter(r *http.Request) { *r = *r.WithContext(c) }

// replaceContext gives a request another context, once serve has returned.
func replaceContext(ctx context.Context, r *http.Request) {
	if lent, ok := r.Context().(*lentContext); ok && lent.over.Load() {
		lent.later.Store(&ctx)
		return
	}
	*r = *r.WithContext(ctx)
}

// lentContext is one context while a handler works, and another one afterwards.
type lentContext struct {
	inside, outer context.Context
	over          atomic.Bool
	later         atomic.Pointer[context.Context] // instead of outer, or nil
}

func (c *lentContext) current() context.Context {
	if !c.over.Load() {
		return c.inside
	}
	if later := c.later.Load(); later != nil {
		return *later
	}
	return c.outer
}

// Deadline implements [context.Context].
func (c *lentContext) Deadline() (time.Time, bool) { return c.current().Deadline() }

// Done implements [context.Context].
func (c *lentContext) Done() <-chan struct{} { return c.current().Done() }

// Err implements [context.Context].
func (c *lentContext) Err() error { return c.current().Err() }

// Value implements [context.Context].
func (c *lentContext) Value(key any) any { return c.current().Value(key) }

// outlivingContext has the values of a context, and does not end with it. It is what
// [context.WithoutCancel] makes, in the memory of a visit. It is for a parent only: if
// asked for a cause, it would return that of the other context.
type outlivingContext struct{ values context.Context }

// Deadline implements [context.Context].
func (*outlivingContext) Deadline() (deadline time.Time, ok bool) { return deadline, false }

// Done implements [context.Context].
func (*outlivingContext) Done() <-chan struct{} { return nil }

// Err implements [context.Context].
func (*outlivingContext) Err() error { return nil }

// Value implements [context.Context].
func (c *outlivingContext) Value(key any) any { return c.values.Value(key) }

// Interface guards
var (
	_ context.Context = (*lentContext)(nil)
	_ context.Context = (*outlivingContext)(nil)
)

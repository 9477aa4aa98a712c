package serialize

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// serveIn runs a handler with another context of the request. It changes the
// request in place: Caddy's placeholders know it by its address, and would not
// see what the handlers do to a copy.
//
// It does not change the request back. A proxy's transport may still read the body,
// and then the request, when the handler has returned.
func serveIn(ctx context.Context, w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	lent := &lentContext{inside: ctx, outer: r.Context()}
	defer lent.over.Store(true)
	*r = *r.WithContext(lent)
	return next.ServeHTTP(w, r)
}

// replaceContext gives a request another context, once serveIn has returned.
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

// Interface guard
var _ context.Context = (*lentContext)(nil)

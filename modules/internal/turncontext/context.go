// Package turncontext has the context of a request that holds a turn, and what a revocation does:
// it ends the context, the turns that the request has taken inside, and what blocks on the
// client.
package turncontext

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orderly-http/caddy-orderly/modules/internal/requestbody"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// Context is the context of a request while the next handlers run. Init prepares it, Begin
// puts the request inside, and End ends the turn. Afterwards, error routes have the outer
// context again, or one that ends with it.
type Context struct {
	turns   *Turns   // of the request
	around  *Context // the turn that it holds already, in another queue, or nil
	earlier *Context // the turn that it has taken before, which may be over, or nil
	turn    serializer.Turn
	request *http.Request // that is inside
	outer   fixedType
	inside  fixedType // of the next handlers
	cancel  context.CancelCauseFunc

	// OutlivesClient reports whether the handlers go on when the client has gone.
	OutlivesClient bool

	ending  sync.Mutex    // keeps the turn from ending during a revocation or an interruption
	state   atomic.Uint32 // waiting, inside, or over; it only grows
	cut     atomic.Bool   // reads of the body were ended; that of the outermost turn counts
	sending atomic.Bool   // the client gets an answer, or is sent an interim one; that of the outermost turn counts
	revoked atomic.Pointer[Revocation]
	inner   atomic.Pointer[Context] // of another queue, begun last inside this one, or nil
	failure error                   // of a handler inside, which may have answered it itself, or nil

	endedEarly bool // the inside context ended before the turn
}

// fixedType is a context of a request. A goroutine that outlives the handlers may read the
// request while its context changes. It finds one or the other, since both have this type.
type fixedType struct{ context.Context }

const (
	waiting = iota // or arriving: it has no turn yet
	inside
	over
)

// Revocation is why and when a turn was taken back.
type Revocation struct {
	Cause error
	Time  time.Time
}

// Init prepares the context of a request that is going to wait. With finish, it outlives
// the client: a PHP script does not stop when its client hangs up, and the next request
// must not enter before the script has ended. It never outlives the turn around it.
func (c *Context) Init(r *http.Request, finish bool, turns *Turns) {
	c.turns, c.around, c.outer, c.OutlivesClient = turns, turns.Around(), fixedType{r.Context()}, finish
	parent := c.outer.Context
	if finish {
		parent = context.WithoutCancel(parent)
	}
	c.inside.Context, c.cancel = context.WithCancelCause(parent)
	if c.around != nil {
		c.around.inner.Store(c)
		if revoked := c.around.Revoked(); revoked != nil {
			c.Revoke(revoked.Cause)
		}
	}
}

// outermost is the first of the turns that the request holds.
func (c *Context) outermost() *Context {
	for c.around != nil {
		c = c.around
	}
	return c
}

// Request is the request's own context. It ends when the request has been answered, or with
// the client.
func (c *Context) Request() context.Context { return c.outermost().outer.Context }

// Waiting is the context in which the request waits. It ends with the client, even if the
// turn around it does not. unread is whether the body of an HTTP/1 request is still to be
// read.
func (c *Context) Waiting(unread bool) (ctx context.Context, stop func()) {
	if c.around == nil && !unread {
		return c.outer.Context, func() {}
	}
	ctx, cancel := context.WithCancel(c.outer.Context)
	leave := context.AfterFunc(c.Request(), cancel)
	if unread {
		go watchClient(ctx, cancel)
	}
	return ctx, func() { leave(); cancel() }
}

// Begin puts the request inside, by a turn.
func (c *Context) Begin(r *http.Request, turn serializer.Turn) {
	c.request, c.turn = r, turn
	c.earlier, c.turns.latest = c.turns.latest, c
	c.state.Store(inside)
	setContext(r, &c.inside)
}

// setContext changes a request in place: Caddy's placeholders know it by its address, and
// would not see what the handlers do to a copy. A function of its own keeps its copy of the
// request off the stack while the handlers run.
//
//go:noinline
func setContext(r *http.Request, ctx *fixedType) { *r = *r.WithContext(ctx) }

// Trace lets net/http report what it does for the next handlers. end ends their context.
func Trace(r *http.Request, trace *httptrace.ClientTrace) (end context.CancelCauseFunc) {
	ctx, end := context.WithCancelCause(r.Context())
	setContext(r, &fixedType{httptrace.WithClientTrace(ctx, trace)})
	return end
}

var errOver = fmt.Errorf("the turn is over (%w)", context.Canceled)

// End ends the turn. It reports whether the request was inside.
func (c *Context) End() bool {
	c.ending.Lock()
	defer c.ending.Unlock()
	if !c.state.CompareAndSwap(inside, over) {
		c.cancel(errOver)
		return false
	}
	c.endedEarly = c.inside.Err() != nil
	if !c.endedEarly && !c.ReadsCut() && !requestbody.None(c.request) {
		// A proxy's transport may still send the body of a request that was answered early. At its
		// end, the proxy reads the trailers of the request, which must not change meanwhile.
		context.AfterFunc(c.outer.Context, func() { c.cancel(context.Cause(c.outer.Context)) })
		return true
	}
	c.cancel(errOver)
	if c.cut.Load() { // net/http takes the client for gone
		c.outer.Context = context.WithoutCancel(c.outer.Context)
	}
	setContext(c.request, &c.outer)
	return true
}

// Inside reports whether the request is inside.
func (c *Context) Inside() bool { return c.state.Load() == inside }

// Over reports whether the turn has ended.
func (c *Context) Over() bool { return c.state.Load() == over }

// Revoke takes the turn back, and those that the request has taken inside it. It ends when
// the handlers have returned. Only the first call has an effect, and reports true.
//
// The next handlers must take it for an ordinary cancellation: reverse_proxy would
// otherwise count a failure of the upstream, and try again while it holds the turn.
func (c *Context) Revoke(cause error) bool {
	if !c.revokeOnce(cause) {
		return false
	}
	if inner := c.inner.Load(); inner != nil {
		inner.Revoke(cause)
	}
	return true
}

// revokeOnce revokes this turn alone. The turn cannot end meanwhile: a response that was
// whole by then would be answered with 504.
func (c *Context) revokeOnce(cause error) bool {
	c.ending.Lock()
	defer c.ending.Unlock()
	if c.Over() || !c.revoked.CompareAndSwap(nil, &Revocation{cause, time.Now()}) {
		return false
	}
	c.cancel(fmt.Errorf("%w (%w)", cause, context.Canceled))
	return true
}

// Revoked is the revocation of the turn, or nil.
func (c *Context) Revoked() *Revocation { return c.revoked.Load() }

// ErrRefused means that a handler has refused the request, which then went no further.
var ErrRefused = errors.New("refused")

// Fail notes the first error of a handler inside this turn, and so inside those around it. That
// handler may have answered it itself. c may be nil.
func (c *Context) Fail(err error) {
	for ; c != nil; c = c.around {
		if c.failure == nil {
			c.failure = err
		}
	}
}

// Failure is the error that was noted, or nil.
func (c *Context) Failure() error { return c.failure }

// InnerRevoked is the revocation of a turn of another queue inside this one, or nil.
func (c *Context) InnerRevoked() (r *Revocation) {
	for inner := c.inner.Load(); inner != nil && r == nil; inner = inner.inner.Load() {
		r = inner.Revoked()
	}
	return r
}

// EndWithClient lets the context of the next handlers end with the client after all.
func (c *Context) EndWithClient() {
	c.OutlivesClient = false
	context.AfterFunc(c.outer.Context, func() { c.cancel(context.Canceled) })
}

// Sends notes whether the writer of the turn's response has begun to send it, or sends an interim
// answer. Otherwise, another answer can be given. The writer of an outer turn may keep it.
func (c *Context) Sends(begun bool) { c.sending.Store(begun) }

// Sent reports whether the client may have got a part of the answer.
func (c *Context) Sent() bool { return c.outermost().sending.Load() }

// EndedEarly reports whether the context had ended before the turn did.
func (c *Context) EndedEarly() bool { return c.endedEarly }

// interruptTime is how often what blocks on the client is interrupted.
const interruptTime = 50 * time.Millisecond

// Interrupt calls a function when the context has ended before the handlers. It does so
// again and again until the turn ends: Caddy sets other deadlines before reads and writes.
// Afterwards, the client's writer must not be used.
func (c *Context) Interrupt(cut func()) (stop func() bool) {
	return context.AfterFunc(c.inside, func() {
		for c.interruptOnce(cut) {
			time.Sleep(interruptTime)
		}
	})
}

func (c *Context) interruptOnce(cut func()) (again bool) {
	c.ending.Lock()
	defer c.ending.Unlock()
	if again = context.Cause(c.inside.Context) != errOver && !c.Over(); again {
		cut()
	}
	return again
}

// Err is why the next handlers should stop, or nil.
func (c *Context) Err() error { return context.Cause(c.inside.Context) }

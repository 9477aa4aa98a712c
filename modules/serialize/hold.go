package serialize

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/connection"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/lentcontext"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/response"
)

// A turn lasts for as long as somebody uses it. These are the handlers behind the queue,
// and handlers of the same request that come to the queue again. After the handlers have
// returned, the error routes use it. The request's context says nothing about that: it
// also ends when the client hangs up.

// openHold prepares the context of the hold. By default the hold outlives the
// client. A PHP script does not stop when its client does, and the next request
// must not enter before the script has ended.
func (v *visit) openHold(r *http.Request) {
	parent := r.Context()
	if v.handler.OnDisconnect == onDisconnectFinish {
		v.parent.Values = parent
		parent = &v.parent
	}
	v.ctx, v.cancel = context.WithCancelCause(parent)
	if outer := v.outer(); outer != nil {
		outer.nest(v)
	}
}

// outer is the request's visit to another queue that it is inside now, or nil.
func (v *visit) outer() *visit {
	for outer := v.next; outer != nil; outer = outer.next {
		if outer.turn != nil && !outer.ended.Load() {
			return outer
		}
	}
	return nil
}

// use takes part in the turn, unless it has ended.
func (v *visit) use() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.uses == 0 {
		return false
	}
	v.uses++
	return true
}

// release ends a use. The last one ends the turn.
func (v *visit) release() {
	v.mu.Lock()
	v.uses--
	last := v.uses == 0
	v.mu.Unlock()
	if last {
		v.leave()
	}
}

const (
	// errorRoutesPatience is how long the turn of a failed request waits for its error
	// routes. It applies if the client has hung up, or has not read what was written
	// before the error. Error routes begin at once, unless another handler has dealt
	// with the error.
	errorRoutesPatience = time.Second

	// errorRoutesDelay is how long the turn outlasts a request that ends later. A
	// handler around the queue may end the context just before the error routes begin.
	errorRoutesDelay = 20 * time.Millisecond
)

// keep holds the turn for the error routes of a request that has failed. If
// they do not come, because there are none or another handler has dealt with
// the error, the turn ends with the request.
func (v *visit) keep(request context.Context) {
	patience := errorRoutesDelay
	if request.Err() != nil { // the client has hung up
		patience = errorRoutesPatience
	}
	v.mu.Lock()
	v.kept, v.patience = true, patience
	v.keeps++
	keep := v.keeps
	v.mu.Unlock()
	context.AfterFunc(request, func() { v.giveUp(keep) })
}

// takeOver hands the use that keep has left to the error routes.
func (v *visit) takeOver() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	kept := v.kept
	v.kept = false
	return kept
}

// giveUp ends the use that keep has left, if nobody has taken it over since.
func (v *visit) giveUp(keep int) {
	v.mu.Lock()
	kept, patience := v.kept && v.keeps == keep, v.patience
	v.mu.Unlock()
	if kept && v.handler.errorRoutes {
		time.Sleep(patience)
	}
	v.giveUpNow(keep)
}

func (v *visit) giveUpNow(keep int) {
	v.mu.Lock()
	kept := v.kept && v.keeps == keep
	if kept {
		v.kept, v.givenUp = false, true
	}
	v.mu.Unlock()
	if kept {
		v.release()
	}
}

func (v *visit) hasGivenUp() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.givenUp
}

// run lets a handler work inside the turn, with a context that ends with it. The
// response goes through w. When the handler has finished, it calls end, which
// may hand the turn over. The client then takes the rest of the response.
func (v *visit) run(ctx context.Context, w *response.Writer, r *http.Request, next caddyhttp.Handler, end func(error)) (err error) {
	around := v.begin(w)
	defer func() {
		thrown := recover()
		v.finish(around)
		thrown, err = w.Conclude(r, err, thrown)
		end(err)
		v.deliver(w, r)
		if thrown != nil {
			panic(thrown)
		}
	}()
	return w.Serve(ctx, r, v.following(next))
}

// following is the next handler. A body that was not read to its end before the ticket
// may break off while the upstream reads it. Then the turn lasts until the upstream has
// closed the connection.
func (v *visit) following(next caddyhttp.Handler) caddyhttp.Handler {
	if v.body == nil || v.body.Ended() || v.handler.OnDisconnect != onDisconnectFinish {
		return next
	}
	u := new(connection.Upstream)
	return caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		hold := r.Context()
		err := new(lentcontext.Context).Serve(httptrace.WithClientTrace(hold, u.Trace()), w, r, next)
		u.Await(hold)
		return err
	})
}

// limitKeep limits how long a turn that is kept for error routes waits for a client
// that still reads what was written before the error.
func (v *visit) limitKeep() {
	v.mu.Lock()
	v.patience = errorRoutesPatience // it may hang up before it has read all
	kept, keep := v.kept, v.keeps
	v.mu.Unlock()
	if kept {
		time.AfterFunc(errorRoutesPatience, func() { v.giveUpNow(keep) })
	}
}

// begin makes w the writer that a revocation acts on, and returns the one before.
func (v *visit) begin(w *response.Writer) (around *response.Writer) {
	v.mu.Lock()
	defer v.mu.Unlock()
	around, v.current = v.current, w
	if v.revoked {
		w.RevokeSoon()
	}
	return around
}

// finish undoes what begin did.
func (v *visit) finish(around *response.Writer) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.current = around
}

// isRunning reports whether handlers of the request are inside.
func (v *visit) isRunning() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.current != nil
}

// resume lets a handler work inside a turn that the request has kept. Its
// request may have another context by now, whose values it keeps.
func (v *visit) resume(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, end func(error)) error {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
	defer cancel(nil)
	follow := func() { cancel(context.Cause(v.ctx)) }
	defer context.AfterFunc(v.ctx, follow)()
	if v.ctx.Err() != nil {
		follow() // AfterFunc is about to do that
	}
	writer := new(response.Writer)
	v.initWriter(writer, w, r)
	return v.run(ctx, writer, r, next, end)
}

package serialize

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/internal/requestid"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// visit is one request in one queue, from arrival to departure.
type visit struct {
	handler *Handler
	engine  *engineRef
	space   string // where the engine keeps its queues
	queue   string
	traced  bool
	met     string // the outcome in a dry run, else ""

	host     string       // of the request; see Request
	clientIP string       // of the request
	id       requestid.ID // of the request; nil without unique_ids

	ctx    context.Context // of the hold
	cancel context.CancelCauseFunc

	failure *caddyhttp.HandlerError // why it never had a turn, or nil
	refused bool                    // by the queue; then failure is set, too

	turn    serializer.Turn
	local   localTurn
	age     ageEntry // in the list of those that wait, then of those inside
	waited  time.Duration
	idle    time.Duration // for which the turn waited for a browser with the waiting page
	entered time.Time
	ended   atomic.Bool
	body    *heldBody   // nil if all of it is in memory
	writer  turnWriter  // of the next handlers
	timer   *time.Timer // of hold_timeout

	uploading bool // the client may still send parts of the body

	mu      sync.Mutex  // guards the fields below
	uses    int         // of the turn, which ends with the last one
	kept    bool        // one use is reserved for the error routes
	keeps   int         // how often one was reserved
	givenUp bool        // the error routes did not run in time
	revoked bool        // the turn was
	current *turnWriter // of the handlers that run now, or nil

	next *visit // the request's previous visit, or nil
}

// enter waits for the turn.
func (v *visit) enter(w http.ResponseWriter, r *http.Request) error {
	s := v.handler
	revoke := v.revoke
	if s.DryRun {
		revoke = v.revokeDry
	}
	clocks := stopDeadlines(w, r, time.Duration(*s.Timeout))
	watch := watchClient(r)
	span := v.startWait(r.Context())
	arrived := time.Now()
	s.meters.startWait(&v.age, v.queue, arrived)
	a := s.arrival(r, v.queue)
	a.Requester, a.Revoke = v, revoke
	turn, err := v.takeTurn(r.Context(), a)
	v.entered = time.Now()
	v.waited = v.entered.Sub(arrived)
	watch.unwatch()
	s.meters.endWait(&v.age, v.waited)
	clocks.restart(v.waited)
	v.turn = turn
	v.endWait(span, err)
	return err
}

// Request implements [serializer.Requester].
func (v *visit) Request() serializer.Request { return v.describeRequest(v.ctx) }

// describeRequest describes the request for lists and events, from its context. It
// may run concurrently with the request, so it reads only what never changes.
func (v *visit) describeRequest(ctx context.Context) serializer.Request {
	described := serializer.Request{Host: v.host, ClientIP: v.clientIP}
	if original, ok := ctx.Value(caddyhttp.OriginalRequestCtxKey).(http.Request); ok {
		described.Method, described.Path = original.Method, original.URL.Path
	}
	if v.id != nil {
		described.TXID = v.id.TXID()
	}
	return described
}

// openHold prepares the context of the hold. By default the hold outlives the
// client. A PHP script does not stop when its client does, and the next request
// must not enter before the script has ended.
func (v *visit) openHold(r *http.Request) {
	parent := r.Context()
	if v.handler.OnDisconnect == onDisconnectFinish {
		parent = context.WithoutCancel(parent)
	}
	v.ctx, v.cancel = context.WithCancelCause(parent)
	if outer := v.outer(); outer != nil { // its revocation revokes this turn, too
		context.AfterFunc(outer.ctx, func() {
			if revoked, ok := errors.AsType[revocation](context.Cause(outer.ctx)); ok {
				v.revoke(revoked.error)
			}
		})
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

// revocation is the cause of a hold that its queue has ended, not its client. The
// next handlers must take it for an ordinary cancellation. Otherwise reverse_proxy
// would count a failure of the upstream, and try again while it holds the turn.
type revocation struct{ error }

// Is makes a revocation equal to [context.Canceled].
func (revocation) Is(target error) bool { return target == context.Canceled }

// Unwrap returns why the queue has ended the hold.
func (r revocation) Unwrap() error { return r.error }

func isRevocation(cause error) bool {
	_, ok := errors.AsType[revocation](cause)
	return ok
}

// serve runs the next handler, and hands the turn over when it has finished.
func (v *visit) serve(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	s := v.handler
	if s.DryRun {
		v.observe(r)
	}
	s.meters.startHold(v)
	v.logEntered()
	v.uses = 1
	if hold := time.Duration(s.HoldTimeout); hold > 0 {
		v.timer = time.AfterFunc(hold, func() { v.revoke(errHoldTimeout) })
	}
	v.initWriter(&v.writer, w, r)
	return v.run(v.ctx, &v.writer, r, next, func(err error) { v.end(r, err) })
}

// end hands the turn over, or leaves it to the error routes.
func (v *visit) end(r *http.Request, err error) {
	if err == nil || r.Context().Done() == nil {
		v.release()
		return
	}
	v.keep(r.Context())
	if !v.handler.errorRoutes {
		replaceContext(v.ctx, r) // cancels error routes outside the turn when the turn ends
	}
}

func (v *visit) logEntered() {
	if c := v.handler.logger.Check(zap.DebugLevel, "entered"); c != nil {
		c.Write(append(v.fields(), zap.Int("position", v.turn.Position()), zap.Duration("wait", v.waited))...)
	}
}

func (v *visit) fields() []zap.Field {
	return []zap.Field{zap.String("queue", v.queue), zap.String("token", v.token()), v.txidField()}
}

// txidField names the request in a log entry. It makes the txid, so only an entry
// that is written may have it.
func (v *visit) txidField() zap.Field {
	if v.id == nil {
		return zap.Skip()
	}
	return zap.String("txid", v.id.TXID())
}

func (v *visit) token() string { return strconv.FormatUint(v.turn.Token(), 10) }

// explain replaces the error of a handler whose turn was revoked by the cause.
func (v *visit) explain(w *turnWriter, err error) error {
	if err == nil && !w.unanswered {
		return nil
	}
	revoked, ok := errors.AsType[revocation](context.Cause(v.ctx))
	switch {
	case !ok:
		return err
	case errors.Is(revoked, errHoldTimeout):
		return caddyhttp.Error(http.StatusGatewayTimeout, revoked.error)
	}
	return caddyhttp.Error(http.StatusServiceUnavailable, revoked.error)
}

// leave hands the turn over and ends the visit. Only the first call has an effect.
func (v *visit) leave() {
	if v.ended.Swap(true) {
		return
	}
	s := v.handler
	held := time.Since(v.entered)
	cause := context.Cause(v.ctx)
	if v.timer != nil {
		v.timer.Stop()
	}
	v.turn.Leave()
	v.close()
	v.body.free()
	s.meters.endHold(v, held)
	s.meters.count(v.outcome(cause))
	v.logLeave(held, cause)
}

func (v *visit) logLeave(held time.Duration, cause error) {
	level, message := zap.DebugLevel, "left"
	if isRevocation(cause) {
		level, message = zap.WarnLevel, "left after its turn was revoked"
	}
	if c := v.handler.logger.Check(level, message); c != nil {
		c.Write(append(v.fields(), zap.Duration("hold", held), zap.NamedError("cause", cause))...)
	}
}

// close releases the resources of a visit other than its turn.
func (v *visit) close() {
	v.cancel(nil)
	v.handler.releaseEngine(v.engine)
}

// setPlaceholders makes the placeholders of a request answer for its innermost
// visit, which may be a later one.
func (v *visit) setPlaceholders(repl *caddy.Replacer, vars map[string]any) {
	if v.next != nil {
		return // the first visit has done it
	}
	repl.Map(func(key string) (any, bool) {
		if !strings.HasPrefix(key, "http.serialize.") {
			return nil, false
		}
		latest, ok := vars[visitsVar].(*visit)
		if !ok { // the configuration has overwritten the variable
			latest = v
		}
		return latest.innermost().placeholder(key)
	})
}

// innermost is the latest visit of v's request that has not ended, or v itself,
// which is the latest.
func (v *visit) innermost() *visit {
	for inner := v; inner != nil; inner = inner.next {
		if !inner.ended.Load() {
			return inner
		}
	}
	return v
}

func (v *visit) placeholder(key string) (any, bool) {
	if key == "http.serialize.queue" {
		return v.queue, true
	}
	if key == "http.serialize.reason" {
		return "", true // unless it is refused, which overrides this
	}
	if v.turn == nil {
		return nil, false
	}
	switch key {
	case "http.serialize.position":
		return v.turn.Position(), true
	case "http.serialize.wait_ms":
		return newWaitMS(v.waited), true
	case "http.serialize.token":
		return v.token(), true
	}
	return nil, false
}

// clientOf is the address of the connection's peer, or the zero value without IP.
func clientOf(r *http.Request) netip.AddrPort {
	addr, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.AddrPort{}
	}
	return addr
}

// Interface guards
var _ serializer.Requester = (*visit)(nil)

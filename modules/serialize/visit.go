package serialize

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/orderly-http/caddy-orderly/internal/requestid"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/agelist"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/connection"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/deadlines"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/heldbody"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/lentcontext"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/response"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// visit is one request in one queue, from arrival to departure.
type visit struct {
	handler    *Handler
	engine     *engineRef
	space      string // where the engine keeps its queues
	queue      string
	traced     bool
	dryOutcome string // what it would have met in a dry run, else ""

	host     string       // of the request; see Request
	clientIP string       // of the request
	id       requestid.ID // of the request; nil without unique_ids

	ctx    context.Context // of the hold
	cancel context.CancelCauseFunc
	parent lentcontext.Outliving // of ctx, if the hold outlives the client

	failure *caddyhttp.HandlerError // why it never had a turn, or nil
	refused bool                    // by the queue; then failure is set, too

	turn    serializer.Turn
	age     agelist.Entry // in the list of those that wait, then of those inside
	waited  time.Duration
	idle    time.Duration // for which the turn waited for a browser with the waiting page
	entered time.Time
	ended   atomic.Bool
	body    *heldbody.Body  // nil if all of it is in memory
	writer  response.Writer // of the next handlers
	timer   *time.Timer     // of hold_timeout

	uploading bool // the client may still send parts of the body

	mu         sync.Mutex    // guards the fields below
	uses       int           // of the turn, which ends with the last one
	kept       bool          // one use is reserved for the error routes
	keeps      int           // how often one was reserved
	patience   time.Duration // for which one is reserved after the request's end
	givenUp    bool          // the error routes did not run in time
	revoked    bool          // the turn was
	revokedFor error
	current    *response.Writer // of the handlers that run now, or nil
	inner      *visit           // to another queue, begun last inside this one; or nil

	next *visit // the request's previous visit, or nil
}

// newVisit describes the visit of a request that arrives.
func (s *Handler) newVisit(r *http.Request, repl *caddy.Replacer, vars map[string]any) *visit {
	v := &visit{handler: s, space: s.engine.space, queue: s.queueName(repl), host: r.Host, id: requestid.Of(vars)}
	v.clientIP, _ = vars[caddyhttp.ClientIPVarKey].(string)
	_, v.traced = vars[traceVar]
	v.age.Reader = s.isReader(r)
	return v
}

// enter waits for the turn. Thousands of requests may wait here, so it keeps little on the
// stack: an arrival is large, and no other function has one.
func (v *visit) enter(w http.ResponseWriter, r *http.Request) error {
	clocks := deadlines.Stop(w, r, time.Duration(*v.handler.Timeout))
	watch := connection.Watch(r)
	span := v.startWait(r.Context())
	v.handler.meters.startWait(&v.age, v.queue, time.Now())
	var a serializer.Arrival
	v.describe(&a, r)
	turn, err := v.engine.Enter(r.Context(), a)
	err = v.settle(turn, err)
	watch.Unwatch()
	clocks.Restart(v.waited)
	v.endWait(span, err)
	return err
}

// settle notes how the wait has ended.
func (v *visit) settle(turn serializer.Turn, err error) error {
	if err == nil {
		err = v.engine.checkRivals(v.queue, turn)
	}
	if err == nil {
		v.turn = turn
	}
	v.entered = time.Now()
	v.waited = v.entered.Sub(v.age.Since)
	v.handler.meters.endWait(&v.age, v.waited)
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

// serve runs the next handler, and hands the turn over when it has finished.
func (v *visit) serve(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	s := v.handler
	if s.DryRun {
		v.recordDryRun(r)
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
		lentcontext.Replace(v.ctx, r) // cancels error routes outside the turn when the turn ends
	}
}

func (v *visit) token() string { return strconv.FormatUint(v.turn.Token(), 10) }

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
	v.body.Free()
	s.meters.endHold(v, held)
	s.meters.count(v.outcome(cause))
	v.logLeft(held, cause)
}

// close releases the resources of a visit other than its turn.
func (v *visit) close() {
	v.cancel(nil)
	v.handler.releaseEngine(v.engine)
}

// Interface guards
var _ serializer.Requester = (*visit)(nil)

package serialize

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/orderly-http/caddy-orderly/internal/requestid"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/agelist"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/body"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/response"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// This file has one request from its arrival at a queue to its departure: it passes or
// arrives, its body is read, it waits, the next handlers run while it is inside, it leaves,
// and its response is delivered.

// visit is one request in one queue. A request that comes to several queues, or to one
// queue again after it has left, has a visit for each.
type visit struct {
	handler *Handler
	engine  *engineRef // with a reference while the visit is waiting or inside
	queue   string
	rule    serializer.Rule
	earlier *visit // the request's previous visit, or nil

	host, clientIP string       // of the request; see Request
	id             requestid.ID // of the request; nil without unique_ids
	traced         bool

	failure *caddyhttp.HandlerError // why it never had a turn, or nil
	refused bool                    // by the queue; then failure is set, too

	turn       serializer.Turn
	age        agelist.Entry // in the list of those that wait, then of those inside
	waited     time.Duration
	entered    time.Time
	dryOutcome string // what it would have met in a dry run, else ""

	ctx      context.Context // of the next handlers
	cancel   context.CancelCauseFunc
	lent     lentContext       // the request has it while they run
	body     *body.Body        // to be freed, or nil
	response response.Response // of the next handlers

	mu        sync.Mutex // guards the fields below
	state     visitState
	revoked   error // why the turn was taken back, or nil
	revokedAt time.Time
	inner     *visit // to another queue, begun last inside this one, or nil
}

// visitState is where a visit is. It only grows.
type visitState uint8

const (
	visitWaiting visitState = iota // or arriving: it has no turn yet
	visitInside
	visitOver
)

// The variables of a request that tell later handlers what earlier ones did.
const (
	visitsVar = "orderly.serialize"     // its visits to queues, the latest first
	offVar    = "orderly.serialize.off" // it passes all queues that follow
	traceVar  = "trace_id"              // set by Caddy's tracing, and faster to find than a span
)

// ServeHTTP waits for the request's turn, serves it, and hands the turn over.
func (s *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	vars := r.Context().Value(caddyhttp.VarsCtxKey).(map[string]any)
	if s.Off {
		vars[offVar] = true
	}
	if _, off := vars[offVar]; off {
		return next.ServeHTTP(w, r)
	}
	if slices.Contains(s.SkipMethods, r.Method) {
		s.meters.count(outcomeSkipped)
		return next.ServeHTTP(w, r)
	}
	repl := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	v := s.newVisit(r, repl, vars)
	if before := v.before(vars); before != nil {
		return s.serveAgain(before, v, w, r, next)
	}
	v.register(repl, vars)
	if err := v.readBody(w, r); err != nil {
		return v.refuse(w, r, err)
	}
	if s.WaitingPage != nil && isNavigation(r) {
		return v.serveNavigation(w, r, next)
	}
	if err := v.wait(w, r); err != nil {
		return v.turnAway(w, r, next, err)
	}
	return v.serve(w, r, next)
}

// newVisit describes the visit of a request that arrives.
func (s *Handler) newVisit(r *http.Request, repl *caddy.Replacer, vars map[string]any) *visit {
	v := &visit{handler: s, engine: s.engine, queue: s.queueName(repl), rule: s.rule, host: r.Host, id: requestid.Of(vars)}
	if slices.Contains(s.SharedMethods, r.Method) {
		v.rule, v.age.Reader = s.shared, true
	}
	v.clientIP, _ = vars[caddyhttp.ClientIPVarKey].(string)
	_, v.traced = vars[traceVar]
	return v
}

// queueName is the name of the request's queue.
func (s *Handler) queueName(repl *caddy.Replacer) string {
	if !s.placeholders {
		return s.queue
	}
	return serializer.QueueName(repl.ReplaceAll(s.Prefix, ""))
}

// before returns the request's earlier visit to the same queue if that decides about this
// one: it is inside, or it never had a turn.
func (v *visit) before(vars map[string]any) *visit {
	v.earlier, _ = vars[visitsVar].(*visit)
	for earlier := v.earlier; earlier != nil; earlier = earlier.earlier {
		if earlier.queue == v.queue && earlier.engine.space == v.engine.space && (earlier.failure != nil || earlier.isInside()) {
			return earlier
		}
	}
	return nil
}

// serveAgain serves a request that comes to the queue of an earlier visit again, as v
// would. A reentrant request passes while it holds its turn: it would wait for itself.
// One that was refused is refused again: an error route must not let it in.
func (s *Handler) serveAgain(earlier, v *visit, w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if earlier.failure != nil {
		return s.answerRefusal(w, earlier)
	}
	if s.DryRun || earlier.rule.AsStrictAs(v.rule) {
		return next.ServeHTTP(w, r)
	}
	s.logStricter(earlier, v)
	return v.fail(caddyhttp.Error(http.StatusServiceUnavailable, fmt.Errorf(
		"queue %q: the request is inside by a line with %s, and comes to one with %s, which is stricter; give both lines the same settings",
		v.queue, earlier.handler.ruleText(), s.ruleText())))
}

// register makes the visit the request's latest one.
func (v *visit) register(repl *caddy.Replacer, vars map[string]any) {
	vars[visitsVar] = v
	if v.earlier == nil {
		mapPlaceholders(v, repl, vars)
	}
}

// readBody reads the request body before the request takes its ticket. So a slow or
// stalled upload holds neither a ticket nor a turn.
func (v *visit) readBody(w http.ResponseWriter, r *http.Request) error {
	s := v.handler
	if r.ContentLength == 0 || s.streamsBody() {
		return nil
	}
	if caddyhttp.IsIncremental(r.Header) {
		w.Header().Set("Proxy-Status", "orderly; error=incremental_refused") // RFC 10036, section 3.1
		return v.failed(http.StatusServiceUnavailable, errIncremental)
	}
	if err := v.checkRoom(); err != nil {
		return err
	}
	var err error
	v.body, err = body.Read(w, r, body.Limits{Memory: int64(*s.Buffer), Disk: int64(*s.BufferDisk)})
	if err == nil {
		return nil
	}
	if errors.Is(err, body.ErrFile) {
		return &serializer.Refused{Reason: serializer.ReasonStorage, Queue: v.queue, Err: err}
	}
	s.logBody(v, err)
	return &serializer.Refused{Reason: serializer.ReasonGone, Queue: v.queue, Err: err}
}

var errIncremental = errors.New("the request asks for incremental forwarding, which a queue does only with `buffer off`")

// failed is the refusal of a request before it has a ticket, for a reason of its own.
func (v *visit) failed(status int, err error) error {
	return &serializer.Refused{Reason: serializer.ReasonGone, Queue: v.queue, Err: caddyhttp.Error(status, err)}
}

// checkRoom refuses the request if the queue is known to be full, so that its client does
// not send a body in vain.
func (v *visit) checkRoom() error {
	s := v.handler
	if s.QueueLength == 0 || s.WhenFull == dropOldest {
		return nil
	}
	inside, waiting := s.engine.Count(v.queue)
	if waiting < s.QueueLength {
		return nil
	}
	return &serializer.Refused{Reason: serializer.ReasonFull, Queue: v.queue, Position: inside + waiting, Err: serializer.ErrFull}
}

// wait takes a ticket and waits for the turn. If it returns an error, the visit is over.
func (v *visit) wait(w http.ResponseWriter, r *http.Request) (err error) {
	s := v.handler
	if v.engine, err = s.acquireEngine(); err != nil {
		v.engine = s.engine // for its space
		v.dropBody(r, err)
		return err
	}
	v.openContext(r)
	restart := response.StopTimeouts(w, r)
	span := v.startWait(r.Context())
	s.meters.startWait(&v.age, v.queue, time.Now())
	turn, err := v.enter(r)
	v.settle(turn, &err)
	restart()
	v.endWait(span, err)
	if err != nil {
		v.close()
		v.dropBody(r, err)
	}
	return err
}

// enter is apart from wait because thousands of requests may wait here: an arrival is
// large, and is on no other stack.
//
//go:noinline
func (v *visit) enter(r *http.Request) (serializer.Turn, error) {
	ctx := r.Context()
	if v.handler.streamsBody() {
		watched, stop := body.Watch(r)
		defer stop()
		ctx = watched
	}
	return v.engine.Enter(ctx, v.arrival(r))
}

// arrival is what the request asks of its queue.
func (v *visit) arrival(r *http.Request) serializer.Arrival {
	s := v.handler
	a := serializer.Arrival{
		Queue: v.queue, Client: peerOf(r), Rule: v.rule, MaxWaiting: s.QueueLength, DropOldest: s.WhenFull == dropOldest,
		Timeout: time.Duration(*s.Timeout), Requester: v, Revoke: v.revoke,
	}
	if s.DryRun {
		a.Revoke = v.revokeDry
	}
	return a
}

// peerOf is the address that the request's connection comes from.
func peerOf(r *http.Request) netip.AddrPort {
	addr, _ := netip.ParseAddrPort(r.RemoteAddr)
	return addr
}

// settle notes how the wait has ended.
func (v *visit) settle(turn serializer.Turn, err *error) {
	if *err == nil {
		*err = v.engine.checkRivals(v.queue, turn)
	}
	if *err == nil {
		v.turn = turn
	}
	v.entered = time.Now()
	v.waited = v.entered.Sub(v.age.Since)
	v.handler.meters.endWait(&v.age, v.waited)
}

// statusClientClosed is the status of a request whose client has gone. Only the access log
// shows it.
const statusClientClosed = 499

// refuse answers a request that does not get a turn.
func (v *visit) refuse(w http.ResponseWriter, r *http.Request, err error) error {
	s := v.handler
	refused := refusalOf(v.queue, err)
	if r.ProtoMajor == 1 && r.ContentLength != 0 && v.body == nil {
		// Caddy hides from net/http how much of the body is left. It would wait for the
		// rest before it answers.
		w.Header().Set("Connection", "close")
	}
	s.meters.count(string(refused.Reason))
	if refused.Reason == serializer.ReasonGone {
		// An error with a status of its own, such as 413 for a body, keeps it.
		return v.fail(caddyhttp.Error(statusClientClosed, err))
	}
	now := time.Now()
	if refused.Reason != serializer.ReasonSuperseded { // which is meant to happen
		s.meters.recent.Refused(now, string(refused.Reason))
	}
	s.logRefusal(v, refused)
	describeRefusal(r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer), v, refused)
	w.Header().Set("Retry-After", s.retryAfter(v.queue, refused.Position, now))

	status := s.ErrorCode
	if refused.Reason.IsFailure() {
		status = http.StatusServiceUnavailable
	}
	s.emitRefusal(r.Context(), v, refused, status)
	v.refused = true
	_ = v.fail(caddyhttp.Error(status, err))
	return s.answerRefusal(w, v)
}

// refusalOf returns the refusal from a queue that an error means. Every error that is not
// a refusal itself is one of the storage.
func refusalOf(queue string, err error) *serializer.Refused {
	if refused, ok := errors.AsType[*serializer.Refused](err); ok {
		return refused
	}
	return &serializer.Refused{Reason: serializer.ReasonStorage, Queue: queue, Err: err}
}

// answerRefusal answers the request of v, which was refused, even when it comes to the
// queue again. Then the handler may be another one, with another `error_response`. The
// status stays the same.
func (s *Handler) answerRefusal(w http.ResponseWriter, v *visit) error {
	if s.ErrorResponse == nil || !v.refused {
		return *v.failure
	}
	w.Header().Set("Content-Type", s.ErrorResponse.ContentType)
	w.WriteHeader(v.failure.StatusCode)
	_, err := w.Write([]byte(s.ErrorResponse.Body))
	return err
}

// fail records why the request does not get a turn.
func (v *visit) fail(failure caddyhttp.HandlerError) error {
	v.failure = &failure
	return failure
}

// openContext prepares the context of the next handlers. By default it outlives the client:
// a PHP script does not stop when its client hangs up, and the next request must not enter
// before the script has ended.
func (v *visit) openContext(r *http.Request) {
	parent := r.Context()
	if v.handler.OnDisconnect == onDisconnectFinish {
		parent = context.WithoutCancel(parent)
	}
	v.ctx, v.cancel = context.WithCancelCause(parent)
	for outer := v.earlier; outer != nil; outer = outer.earlier {
		if outer.nest(v) {
			return
		}
	}
}

// nest notes a visit to another queue that begins inside this one. It returns false if this
// one is not inside.
func (v *visit) nest(inner *visit) bool {
	v.mu.Lock()
	isInside, revoked := v.state == visitInside, v.revoked
	if isInside {
		v.inner = inner
	}
	v.mu.Unlock()
	if isInside && revoked != nil {
		inner.revoke(revoked)
	}
	return isInside
}

// serve runs the next handlers inside, hands the turn over when they have returned, and
// delivers the response.
func (v *visit) serve(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	s := v.handler
	if s.DryRun {
		v.recordDryRun(r)
	}
	s.meters.startHold(&v.age, v.entered)
	v.logEntered()
	v.response.Init(w, r, response.Options{
		Limit: int64(*s.ResponseBuffer), Finish: s.OnDisconnect == onDisconnectFinish,
		Uploading: body.Uploading(r), Cancel: v.cancel,
	})
	defer v.leave() // for handlers that panic
	v.begin()
	if hold := time.Duration(*s.HoldTimeout); hold > 0 {
		timer := time.AfterFunc(hold, func() { v.revoke(errHoldTimeout) })
		defer timer.Stop()
	}
	err := v.lend(r, next)
	v.leave()
	err = v.response.Deliver(err)
	v.dropBody(r, err)
	return err
}

// dropBody frees what was read of the body when the visit is over. The error routes of a
// request that has failed may read it, too.
func (v *visit) dropBody(r *http.Request, err error) {
	switch {
	case v.body == nil:
	case err == nil:
		v.body.Free()
	default:
		context.AfterFunc(r.Context(), v.body.Free)
	}
}

// begin makes the visit one that is inside. The turn may have been revoked already.
func (v *visit) begin() {
	v.mu.Lock()
	v.state = visitInside
	revoked := v.revoked
	v.mu.Unlock()
	if revoked != nil {
		v.response.Revoke(revocation{revoked})
	}
}

func (v *visit) isInside() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.state == visitInside
}

// lend runs the next handlers with the context of the visit. It changes the request in
// place: Caddy's placeholders know it by its address, and would not see what the handlers
// do to a copy. It does not change it back, because a proxy's transport may still read it.
func (v *visit) lend(r *http.Request, next caddyhttp.Handler) error {
	v.lent.inside, v.lent.outer = v.ctx, r.Context()
	setContext(&v.lent, r)
	return v.response.Serve(next, r)
}

// setContext is a function of its own so that its copy of the request is not on the stack
// while the handlers run.
//
//go:noinline
func setContext(ctx context.Context, r *http.Request) { *r = *r.WithContext(ctx) }

// leave hands the turn over and ends the visit. Only the first call has an effect.
func (v *visit) leave() {
	v.mu.Lock()
	over, revoked := v.state == visitOver, v.revoked
	v.state = visitOver
	v.mu.Unlock()
	if over {
		return
	}
	held := time.Since(v.entered)
	v.turn.Leave()
	v.close()
	v.handler.meters.endHold(&v.age, held)
	v.handler.meters.count(v.outcome(revoked))
	v.logLeft(held, revoked)
}

// close frees what a visit has other than its turn.
func (v *visit) close() {
	v.cancel(nil)
	v.lent.over.Store(true) // afterwards: a context whose Done is closed has an Err
	v.handler.releaseEngine(v.engine)
}

// outcome is what has become of a request that was inside.
func (v *visit) outcome(revoked error) string {
	switch {
	case errors.Is(revoked, serializer.ErrLost):
		return string(serializer.ReasonLost)
	case errors.Is(revoked, serializer.ErrEvicted):
		return string(serializer.ReasonEvicted)
	case v.dryOutcome != "":
		return v.dryOutcome
	}
	return outcomeEntered
}

var errHoldTimeout = errors.New("inside for longer than hold_timeout")

// revoke takes the turn back: it cancels what runs in it, ends what blocks on the client,
// and does the same with the turns that the request has taken inside this one. The turn
// ends when the handlers have returned.
func (v *visit) revoke(cause error) {
	v.mu.Lock()
	first := v.revoked == nil && v.state != visitOver
	if first {
		v.revoked = cause
		v.revokedAt = time.Now()
	}
	isInside, inner := v.state == visitInside, v.inner
	v.mu.Unlock()
	if !first {
		return
	}
	if isInside {
		v.response.Revoke(revocation{cause}) // first, since the handlers return when they are cancelled
	}
	v.cancel(revocation{cause})
	if inner != nil {
		inner.revoke(cause)
	}
}

// revocation is the cause with which the context of a revoked turn ends. The next handlers
// must take it for an ordinary cancellation. Otherwise reverse_proxy would count a failure
// of the upstream, and try again while it holds the turn.
type revocation struct{ error }

// Is makes a revocation equal to [context.Canceled].
func (revocation) Is(target error) bool { return target == context.Canceled }

// Unwrap returns why the turn was taken back.
func (r revocation) Unwrap() error { return r.error }

// token is the ticket's number as a text.
func (v *visit) token() string { return strconv.FormatUint(v.turn.Token(), 10) }

// Request implements [serializer.Requester].
func (v *visit) Request() serializer.Request { return v.describeRequest(v.ctx) }

// RevokedAt is when the turn was taken back, or zero.
func (v *visit) RevokedAt() time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.revokedAt
}

// describeRequest describes the request for lists and events, from its context. It may run
// concurrently with the request, so it reads only what never changes.
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

// Interface guards
var _ serializer.Requester = (*visit)(nil)

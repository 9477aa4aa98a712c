package serialize

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/orderly-http/caddy-orderly/internal/requestid"
	"github.com/orderly-http/caddy-orderly/modules/internal/heldturns"
	"github.com/orderly-http/caddy-orderly/modules/internal/requestbody"
	"github.com/orderly-http/caddy-orderly/modules/internal/responsebuffer"
	"github.com/orderly-http/caddy-orderly/modules/internal/turncontext"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/telemetry"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/waitingpage"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// This file has one request from its arrival at a queue to its departure: it passes or
// arrives, its body is read, it waits, the next handlers run while it is inside, it leaves,
// and its response is delivered.

// visit is one request in one queue. A request that comes to several queues, or to one
// queue again after it has left, has a visit for each.
type visit struct {
	handler *Handler
	rule    serializer.Rule
	about   telemetry.Request // what others learn of it
	earlier *visit            // the request's previous visit, or nil
	latest  *visit            // of the request's first visit: its latest one

	failure error // why it was refused, or nil
	body    *requestbody.Body

	engine   *engineRef // with a reference while the visit waits or is inside
	turn     serializer.Turn
	context  turncontext.Context   // waiting, inside, or over
	response responsebuffer.Buffer // of the next handlers
}

// visitsVar tells later handlers of a request's first visit, or that it passes all queues.
const visitsVar = heldturns.Serialize

// passing is a request that passes all queues from now on, and its first visit or nil.
type passing struct{ *visit }

// ServeHTTP waits for the request's turn, serves it, and hands the turn over.
func (s *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) (err error) {
	vars := r.Context().Value(caddyhttp.VarsCtxKey).(map[string]any)
	waitingpage.TakeCookies(r, vars)
	visits := vars[visitsVar]
	first, _ := visits.(*visit)
	_, passes := visits.(passing)
	if s.Off && !passes {
		vars[visitsVar] = passing{first}
	}
	if s.Off || passes {
		return next.ServeHTTP(w, r)
	}
	if slices.Contains(s.SkipMethods, r.Method) {
		s.report.Count(telemetry.OutcomeSkipped)
		return next.ServeHTTP(w, r)
	}
	v := s.newVisit(r, vars, first)
	if before := v.before(); before != nil {
		return v.serveAgain(before, w, r, next)
	}
	v.register(r, vars, first)
	if err = v.readBody(w, r); err != nil {
		return v.refuse(w, r, next, err)
	}
	defer v.dropBody()
	switch err = v.wait(w, r); {
	case err == nil:
		return v.serve(w, r, next)
	case errors.Is(err, waitingpage.ErrAnswered):
		return nil
	}
	return v.refuse(w, r, next, err)
}

// newVisit describes the visit of a request that arrives.
func (s *Handler) newVisit(r *http.Request, vars map[string]any, first *visit) *visit {
	v := &visit{handler: s, rule: s.rule}
	if first != nil {
		v.earlier = first.latest
	}
	v.about.Queue, v.about.ID = s.prefix.Queue(r), requestid.Of(vars)
	if slices.Contains(s.SharedMethods, r.Method) {
		v.rule, v.about.Reader = s.shared, true
	}
	original := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request)
	v.about.Described = serializer.Request{Method: original.Method, Host: r.Host, Path: original.URL.Path}
	v.about.Described.ClientIP, _ = vars[caddyhttp.ClientIPVarKey].(string)
	return v
}

// before returns the request's earlier visit to the same queue if that decides about this
// one: it is inside, or it was refused.
func (v *visit) before() *visit {
	space := v.handler.engine.space
	for e := v.earlier; e != nil; e = e.earlier {
		if e.about.Queue == v.about.Queue && e.handler.engine.space == space && (e.failure != nil || e.context.Inside()) {
			return e
		}
	}
	return nil
}

// serveAgain serves a request that comes to the queue of an earlier visit again. A
// reentrant request passes while it holds its turn: it would wait for itself. One that was
// refused is refused again: an error route must not let it in.
func (v *visit) serveAgain(earlier *visit, w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	s := v.handler
	if earlier.failure != nil {
		v.about.Reason, v.about.Position, v.about.PausedUntil = earlier.about.Reason, earlier.about.Position, earlier.about.PausedUntil
		v.failure = earlier.failure
		return v.answerRefusal(w)
	}
	if s.DryRun || earlier.rule.AsStrictAs(v.rule) {
		return next.ServeHTTP(w, r)
	}
	held, mine := earlier.handler.ruleText, s.ruleText
	s.report.Stricter(&v.about, held, mine)
	earlier.failure = caddyhttp.Error(http.StatusServiceUnavailable, fmt.Errorf("queue %q: the request is inside by a line with %s, "+
		"and comes to one with %s, which is stricter; give both lines the same settings", v.about.Queue, held, mine))
	v.failure = earlier.failure
	return v.answerRefusal(w)
}

// register makes the visit the request's latest one. The placeholders of the request answer
// for the latest that has not ended, or else for the latest. The variables are written once:
// a proxy's transport may read them after its handler has returned, beside error routes.
func (v *visit) register(r *http.Request, vars map[string]any, first *visit) {
	if first != nil {
		first.latest = v
		return
	}
	v.latest = v
	vars[visitsVar] = v
	r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer).Map(func(key string) (any, bool) {
		if !strings.HasPrefix(key, telemetry.PlaceholderPrefix) {
			return nil, false
		}
		for open := v.latest; open != nil; open = open.earlier {
			if !open.context.Over() {
				return open.about.Placeholder(key)
			}
		}
		return v.latest.about.Placeholder(key)
	})
}

// around is the context of the turn that the request has taken last of those that it holds
// already, or nil.
func (v *visit) around() *turncontext.Context {
	for e := v.earlier; e != nil; e = e.earlier {
		if e.context.Inside() {
			return &e.context
		}
	}
	return nil
}

// Held implements [heldturns.Holder] for the first visit of a request, which may be nil.
func (v *visit) Held(turns []serializer.Turn) []serializer.Turn {
	if v == nil {
		return turns
	}
	for e := v.latest; e != nil; e = e.earlier {
		if e.context.Inside() {
			turns = append(turns, e.turn)
		}
	}
	return turns
}

// readBody reads the request body before the request takes its ticket. So a slow or
// stalled upload holds neither a ticket nor a turn.
func (v *visit) readBody(w http.ResponseWriter, r *http.Request) (err error) {
	s := v.handler
	if *s.Buffer == bufferOff { // the next handlers read it while they are inside
		return nil
	}
	if len(r.Header["Incremental"]) > 0 && caddyhttp.IsIncremental(r.Header) {
		w.Header().Set("Proxy-Status", "orderly; error=incremental_refused") // RFC 10036, section 3.1
		return caddyhttp.Error(http.StatusServiceUnavailable,
			errors.New("the request asks for incremental forwarding, which a queue does only with `buffer off`"))
	}
	if requestbody.None(r) {
		return nil
	}
	if s.QueueLength > 0 && s.WhenFull == dropNewest {
		// If the queue is full already, the client need not send its body in vain.
		if inside, waiting := s.engine.Count(v.about.Queue); waiting >= s.QueueLength {
			return &serializer.Refused{
				Reason: serializer.ReasonFull, Queue: v.about.Queue, Position: inside + waiting, Err: serializer.ErrFull,
			}
		}
	}
	v.body, err = requestbody.Read(r, requestbody.Limits{Memory: int64(*s.Buffer), Disk: int64(*s.BufferDisk)})
	if errors.Is(err, requestbody.ErrTooLarge) {
		s.report.TooLarge(&v.about, err)
	}
	return err
}

// dropBody frees what was read of the body when the request has been answered: error routes
// may read it, too, also those that come after an outer turn.
func (v *visit) dropBody() {
	if v.body != nil {
		context.AfterFunc(v.context.Request(), v.body.Free)
	}
}

// wait takes a ticket and waits for the turn. If it returns an error, the visit has none.
func (v *visit) wait(w http.ResponseWriter, r *http.Request) (err error) {
	s := v.handler
	v.context.Init(r, s.OnDisconnect == onDisconnectFinish, v.around())
	if s.WaitingPage != nil && waitingpage.Serves(r) {
		err = v.waitAsBrowser(w, r)
	} else if v.engine, err = s.engine.acquire(); err == nil {
		err = v.enter(w, r)
	}
	if err != nil && v.engine != nil {
		v.engine.Release()
	}
	return err
}

// waitAsBrowser waits with the ticket of the request's browser. If that takes long, the
// browser gets the page, and comes again.
func (v *visit) waitAsBrowser(w http.ResponseWriter, r *http.Request) error {
	s := v.handler
	ctx, stop := v.context.Waiting(requestbody.Unread(r))
	defer stop()
	engine, taken, err := registered.browsers.Wait(w, r.WithContext(ctx), &waitingpage.Visit{
		Arrival: v.arrival(r), About: &v.about, Report: s.report, Capacity: s.capacity, Page: s.WaitingPage.page,
		Space: s.engine.space, Acquire: func() (waitingpage.Engine, error) { return s.engine.acquire() },
	})
	if err != nil {
		return err
	}
	v.engine = engine.(*engineRef)
	return v.take(taken, nil)
}

// enter takes a ticket, and waits if the turn does not come at once.
func (v *visit) enter(w http.ResponseWriter, r *http.Request) error {
	taken, wait, err := v.arrive(r)
	if taken != nil {
		v.handler.report.Admitted(&v.about)
		return v.take(taken, nil)
	}
	ctx, stop := v.context.Waiting(requestbody.Unread(r))
	defer stop()
	defer turncontext.StopTimeouts(w, r)()
	v.handler.report.Waits(r.Context(), &v.about)
	if err == nil {
		err = v.take(wait.End(ctx))
	}
	v.handler.report.Waited(&v.about, err)
	return err
}

// arrive is apart from enter because thousands of requests may wait there: an arrival is
// large, and is not on their stacks.
//
//go:noinline
func (v *visit) arrive(r *http.Request) (serializer.Turn, serializer.Wait, error) {
	return v.engine.Arrive(v.arrival(r))
}

// arrival is what the request asks of its queue.
func (v *visit) arrival(r *http.Request) serializer.Arrival {
	s := v.handler
	return serializer.Arrival{
		Queue: v.about.Queue, Client: r.RemoteAddr, Rule: v.rule, MaxWaiting: s.QueueLength, DropOldest: s.WhenFull == dropOldest,
		Timeout: time.Duration(*s.Timeout), Requester: v, Revoke: v.revoke,
		Holds: heldturns.Of(r.Context().Value(caddyhttp.VarsCtxKey).(map[string]any)),
	}
}

// take gives the visit its turn, unless another request is inside by another engine. err is
// why there is no turn, or nil.
func (v *visit) take(taken serializer.Turn, err error) error {
	if err == nil {
		err = v.engine.checkRivals(v.about.Queue, taken)
	}
	if err == nil {
		v.turn, v.about.Token, v.about.Position = taken, taken.Token(), taken.Position()
	}
	return err
}

// refuse answers a request that does not get a turn. In a dry run, it serves the request
// without one: the storage fails, the queue is paused, or somebody has a real turn.
func (v *visit) refuse(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, err error) error {
	s, refused := v.handler, refusalOf(err)
	if s.DryRun && refused.Reason != serializer.ReasonGone {
		s.report.Ticketless(&v.about, refused)
		return next.ServeHTTP(w, r)
	}
	if requestbody.Unread(r) {
		// Caddy hides from net/http how much of the body is left. It would wait for the
		// rest before it answers.
		w.Header().Set("Connection", "close")
	}
	if refused.Reason == serializer.ReasonGone {
		// An error with a status of its own, such as 413 for a body, keeps it.
		s.report.Count(string(refused.Reason))
		v.failure = caddyhttp.Error(requestbody.StatusClientClosed, err)
		return v.answerRefusal(w)
	}
	status := s.ErrorCode
	if refused.Reason.IsFailure() {
		status = http.StatusServiceUnavailable
	}
	v.about.Reason, v.about.Position, v.about.Token = refused.Reason, refused.Position, refused.Token
	v.about.PausedUntil = cmp.Or(v.engine, s.engine).PausedUntil(v.about.Queue)
	v.failure = caddyhttp.Error(status, err)
	s.report.Refused(&v.about, status, refused.Err)
	return v.answerRefusal(w)
}

// refusalOf returns the refusal that an error means. One with a status of its own is the
// client's fault, and every other one that of the storage.
func refusalOf(err error) *serializer.Refused {
	if refused, ok := errors.AsType[*serializer.Refused](err); ok {
		if errors.Is(err, errHoldTimeout) { // of a queue around, whose client is still there
			refused.Reason = serializer.ReasonTimeout
		}
		return refused
	}
	reason := serializer.ReasonStorage
	if _, ok := errors.AsType[caddyhttp.HandlerError](err); ok && !errors.Is(err, requestbody.ErrFile) {
		reason = serializer.ReasonGone
	}
	return &serializer.Refused{Reason: reason, Err: err}
}

// answerRefusal answers a request that was refused, also if it comes to its queue again. Then
// this handler may have another `error_response`; the status stays the same. Error routes
// answer what is the client's fault: trying again does not help.
func (v *visit) answerRefusal(w http.ResponseWriter) error {
	failure, _ := errors.AsType[caddyhttp.HandlerError](v.failure)
	if v.about.Reason == "" && failure.StatusCode < 500 {
		return v.failure
	}
	s := v.handler
	w.Header().Set("Retry-After", s.report.RetryAfter(v.about.Queue, v.about.Position, s.capacity, v.about.PausedUntil, time.Now()))
	if s.ErrorResponse == nil {
		return v.failure
	}
	w.Header().Set("Content-Type", s.ErrorResponse.ContentType)
	w.WriteHeader(failure.StatusCode)
	_, err := w.Write([]byte(s.ErrorResponse.Body))
	return err
}

// serve runs the next handlers inside, hands the turn over when they have returned, and
// delivers the response.
func (v *visit) serve(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	s := v.handler
	outcome := telemetry.OutcomeEntered
	if s.DryRun {
		outcome = v.recordDryRun()
	}
	s.report.Entered(&v.about)
	v.context.Begin(r)
	defer v.leave(outcome) // for handlers that panic
	v.response.Init(w, r, &v.context, int64(*s.ResponseBuffer))
	if hold := time.Duration(*s.HoldTimeout); hold > 0 {
		timer := time.AfterFunc(hold, func() { v.revoke(errHoldTimeout) })
		defer timer.Stop()
	}
	err := v.response.Serve(next, r)
	v.leave(outcome)
	s.report.TimedOut(&v.about, err)
	return v.response.Deliver(err)
}

// recordDryRun records what a request has met in a dry run, and returns the outcome. It has
// entered at once, as a reader that nobody keeps out.
func (v *visit) recordDryRun() (outcome string) {
	rule, shared := v.handler.engineRules()
	if v.about.Reader {
		rule = shared
	}
	return v.handler.report.DryRun(&v.about, rule)
}

// leave hands the turn over and ends the visit. Only the first call has an effect. outcome
// is that of a turn that was not taken back.
func (v *visit) leave(outcome string) {
	if v.context.Over() || !v.context.End() {
		return
	}
	v.turn.Leave()
	v.engine.Release()
	var cause error
	if revoked := v.context.Revoked(); revoked != nil {
		cause = revoked.Cause
		if reason := serializer.ReasonOf(cause); reason == serializer.ReasonEvicted || reason == serializer.ReasonLost {
			outcome = string(reason)
		}
	}
	v.handler.report.Left(&v.about, outcome, cause)
}

var errHoldTimeout = errors.New("inside for longer than hold_timeout")

// revokedPatience is how long a revoked request may stay inside before the log says so.
const revokedPatience = 10 * time.Second

// revoke takes the turn back. It ends when the handlers have returned.
func (v *visit) revoke(cause error) {
	report := v.handler.report
	if v.handler.DryRun && !errors.Is(cause, serializer.ErrEvicted) {
		return // it must not harm a live site
	}
	if !v.context.Revoke(cause) {
		return
	}
	if v.context.Inside() {
		report.Revoked(&v.about, cause)
	}
	time.AfterFunc(revokedPatience, func() {
		if v.context.Inside() {
			report.StillInside(&v.about, cause)
		}
	})
}

// Request implements [serializer.Requester].
func (v *visit) Request() serializer.Request { return v.about.Request() }

// PastHoldTimeout reports whether the turn was taken back by hold_timeout.
func (v *visit) PastHoldTimeout() bool {
	revoked := v.context.Revoked()
	return revoked != nil && errors.Is(revoked.Cause, errHoldTimeout)
}

// Interface guards
var (
	_ serializer.Requester = (*visit)(nil)
	_ heldturns.Holder     = (*visit)(nil)
)

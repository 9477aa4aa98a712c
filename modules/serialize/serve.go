package serialize

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/orderly-http/caddy-orderly/internal/directive"
	"github.com/orderly-http/caddy-orderly/internal/requestid"
	"github.com/orderly-http/caddy-orderly/modules/internal/engines"
	"github.com/orderly-http/caddy-orderly/modules/internal/requestbody"
	"github.com/orderly-http/caddy-orderly/modules/internal/responsebuffer"
	"github.com/orderly-http/caddy-orderly/modules/internal/turncontext"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/telemetry"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/waitingpage"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// This file has one request from its arrival at a queue to its departure: it passes or
// arrives, its body is read, it waits, the next handlers run while it is inside, it leaves,
// and its response is delivered. A request of a visit does the same by the turn of its browser.

// passage is the way of one request through one queue. A request that comes to several
// queues, or to one queue again after it has left, has a passage for each.
type passage struct {
	handler *Handler
	rule    serializer.Rule
	about   telemetry.Request // what lists, logs and metrics have of it
	earlier *passage          // the request's previous passage, or nil
	all     *passages         // of the request

	failure error // why it was refused, or nil
	body    *requestbody.Body

	engine   *engines.Ref // kept open by the passage while it waits or is inside
	turn     serializer.Turn
	visit    *waitingpage.Part     // of the request in the visit of its browser, or nil
	context  turncontext.Context   // waiting, inside, or over
	response responsebuffer.Buffer // of the next handlers
	stream   *eventStream          // that the client gets if the passage has to wait, or nil
	standing waitingpage.Standing  // for its comments

	heldUntil time.Time                   // when the turn ends at the earliest; zero without hold_at_least
	held      atomic.Pointer[func() bool] // keeps the turn of a request that has left from its end; else nil
}

// passages is what is known of one request. A variable of the request has it, which is written
// once: a proxy's transport may read the variables after its handler has returned, beside error
// routes.
type passages struct {
	turns    *turncontext.Turns
	provided turncontext.Turns // with the same allocation
	latest   *passage          // or nil
	bypass   bool              // the request bypasses all queues from now on
	stream   *eventStream      // of the outermost line with keepalive that the request has not left, or nil
}

const passagesVar = "orderly.serialize"

// ServeHTTP waits for the request's turn, serves it, and hands the turn over.
func (s *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) (err error) {
	vars := r.Context().Value(caddyhttp.VarsCtxKey).(map[string]any)
	waitingpage.TakeCookies(r, vars)
	all, _ := vars[passagesVar].(*passages)
	if all == nil {
		all = new(passages)
		all.turns = turncontext.TurnsOf(vars, &all.provided)
		vars[passagesVar] = all
	}
	all.bypass = all.bypass || s.Off && !isAmbiguous(r.URL.Path)
	if all.bypass || s.Off {
		return next.ServeHTTP(w, r)
	}
	if slices.Contains(s.SkipMethods, r.Method) {
		s.report.Count(telemetry.OutcomeSkipped)
		return next.ServeHTTP(w, r)
	}
	p := s.newPassage(r, vars, all)
	if before := p.before(); before != nil {
		return p.serveAgain(before, w, r, next)
	}
	all.add(p, r)
	if all.stream == nil && s.streams(r) {
		all.stream = &eventStream{w: w, header: w.Header()}
		w = all.stream
		defer p.endStream(&err)
	}
	p.stream = all.stream
	p.context.Init(r, s.OnDisconnect == onDisconnectFinish, all.turns)
	defer func() { p.visit.Leave() }()
	if s.line.Visits != nil { // before the body is read, since the visit must not end meanwhile
		p.visit, err = registered.browsers.Visit(w, r, s.line, p.about.Queue, p.revoke)
	}
	if err == nil {
		err = p.checkOpen(r)
	}
	if err == nil {
		err = p.readBody(w, r)
	}
	if err != nil {
		return p.refuse(w, r, next, err)
	}
	defer p.body.FreeAfter(p.context.Request())
	switch err = p.wait(w, r); {
	case err == nil:
		return p.serve(w, r, next)
	case errors.Is(err, waitingpage.ErrAnswered):
		all.turns.Around().Fail(turncontext.ErrRefused) // what is around must not take the page for an answer of the upstream
		return nil
	}
	return p.refuse(w, r, next, err)
}

// isAmbiguous reports whether an upstream may read a path as another one than Caddy's matchers,
// which clean it first: they match /shop/../static/ with /static/*, and //static/shop, which many
// take for the path /shop of a host. Some upstreams also take backslashes for slashes, or cut off
// what follows a semicolon.
func isAmbiguous(path string) bool {
	path = strings.ReplaceAll(path, `\`, "/")
	if strings.HasPrefix(path, "//") {
		return true
	}
	for segment := range strings.SplitSeq(path, "/") {
		if segment, _, _ = strings.Cut(segment, ";"); segment == "." || segment == ".." {
			return true
		}
	}
	return false
}

// newPassage describes the passage of a request that arrives.
func (s *Handler) newPassage(r *http.Request, vars map[string]any, all *passages) *passage {
	s.first.Do(func() { s.warnOfRoot(vars) })
	p := &passage{handler: s, rule: s.ruleOf(r.Method), earlier: all.latest, all: all}
	p.about.Queue, p.about.ID = s.prefix.Queue(r), requestid.Of(vars)
	original := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request)
	p.about.Described = serializer.Request{Method: original.Method, Host: r.Host, Path: original.URL.Path}
	p.about.Described.ClientIP, _ = vars[caddyhttp.ClientIPVarKey].(string)
	for e := all.latest; e != nil && p.about.Slot == ""; e = e.earlier {
		if e.context.Inside() {
			p.about.Slot = e.about.Slot
		}
	}
	return p
}

// before returns the request's earlier passage to the same queue if that decides about this
// one: it was refused, or it has the turn. One that is held without the request is taken up again.
func (p *passage) before() *passage {
	space := p.handler.engine.Space
	for e := p.earlier; e != nil; e = e.earlier {
		same := e.about.Queue == p.about.Queue && e.handler.engine.Space == space
		if same && (e.failure != nil || e.context.Inside() || e.reenter()) {
			return e
		}
	}
	return nil
}

// serveAgain serves a request that comes to the queue of an earlier passage again. A
// reentrant request passes while it holds its turn: it would wait for itself. One that was
// refused is refused again: an error route must not let it in.
func (p *passage) serveAgain(earlier *passage, w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	s := p.handler
	if earlier.failure != nil {
		return s.answerRefusal(earlier, w)
	}
	strict := s.DryRun || earlier.rule.AsStrictAs(p.rule)
	switch reentered := earlier.context.Over(); {
	case strict && reentered:
		return p.serveHeld(earlier, w, r, next)
	case strict:
		return next.ServeHTTP(w, r)
	case reentered:
		earlier.endTurn()
	}
	held, mine := earlier.handler.ruleText, s.ruleText
	s.report.Stricter(&p.about, held, mine)
	earlier.failure = caddyhttp.Error(http.StatusServiceUnavailable, fmt.Errorf("queue %q: the request is inside by a line with %s, "+
		"and comes to one with %s, which is stricter; give both lines the same settings", p.about.Queue, held, mine))
	return s.answerRefusal(earlier, w)
}

// add makes a passage the request's latest one. The placeholders of the request answer for the
// latest that has not ended, or else for the latest.
func (all *passages) add(p *passage, r *http.Request) {
	all.latest = p
	if p.earlier != nil {
		return
	}
	r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer).Map(func(key string) (any, bool) {
		if !strings.HasPrefix(key, telemetry.PlaceholderPrefix) {
			return nil, false
		}
		for open := all.latest; open != nil; open = open.earlier {
			if !open.context.Over() {
				return open.about.Placeholder(key)
			}
		}
		return all.latest.about.Placeholder(key)
	})
}

// readBody reads the request body before the request takes its ticket. So a slow or
// stalled upload holds neither a ticket nor a turn.
func (p *passage) readBody(w http.ResponseWriter, r *http.Request) (err error) {
	s := p.handler
	if *s.Buffer == directive.Off { // the next handlers read it while they are inside
		return nil
	}
	if err := requestbody.RefuseIncremental(w, r); err != nil {
		return err
	}
	if requestbody.None(r) {
		return nil
	}
	if s.QueueLength > 0 && s.WhenFull == dropNewest && p.visit == nil {
		// If the queue is full already, the client need not send its body in vain.
		if inside, waiting := s.engine.Count(p.about.Queue); waiting >= s.QueueLength {
			return &serializer.Refused{
				Reason: serializer.ReasonFull, Queue: p.about.Queue, Position: inside + waiting, Err: serializer.ErrFull,
			}
		}
	}
	p.body, err = requestbody.Read(r, requestbody.Limits{Memory: int64(*s.Buffer), Disk: int64(*s.BufferDisk)})
	if errors.Is(err, requestbody.ErrTooLarge) {
		s.report.TooLarge(&p.about, err)
	}
	return err
}

// wait takes a ticket and waits for the turn. If it returns an error, the passage has none.
func (p *passage) wait(w http.ResponseWriter, r *http.Request) (err error) {
	s := p.handler
	if p.visit != nil {
		return p.enterVisit()
	}
	if p.isOfBrowser(r) {
		err = p.waitAsBrowser(w, r)
	} else if p.engine, err = s.engine.Acquire(); err == nil {
		err = p.enter(w, r)
	}
	if err != nil && p.engine != nil {
		p.engine.Release()
	}
	return err
}

// enter takes a ticket, and waits if the turn does not come at once.
func (p *passage) enter(w http.ResponseWriter, r *http.Request) error {
	taken, wait, err := p.arrive(r)
	if taken != nil {
		p.handler.report.Admitted(&p.about)
		return p.take(p.engine, taken, nil)
	}
	ctx, stop := p.context.Waiting(requestbody.Unread(r))
	defer stop()
	p.handler.report.Waits(r.Context(), &p.about)
	switch {
	case err != nil:
	case p.stream != nil && p.handler.KeepAlive != nil:
		taken, err = p.waitCommenting(ctx, wait, w, r)
	default:
		defer turncontext.StopTimeouts(w, r)()
		taken, err = wait.End(ctx)
	}
	err = p.take(p.engine, taken, err)
	p.handler.report.Waited(&p.about, err)
	return err
}

// arrive is a function of its own to keep the arrival, which is large, off the stack of enter.
// Thousands of requests may wait there.
//
//go:noinline
func (p *passage) arrive(r *http.Request) (serializer.Turn, serializer.Wait, error) {
	return p.engine.Arrive(p.arrival(r))
}

// arrival is what the request asks of its queue. Its line may have ended since it came.
func (p *passage) arrival(r *http.Request) serializer.Arrival {
	s := p.handler
	p.rule = s.successor().ruleOf(r.Method)
	return serializer.Arrival{
		Queue: p.about.Queue, Client: r.RemoteAddr, Rule: p.rule, MaxWaiting: s.QueueLength, DropOldest: s.WhenFull == dropOldest,
		Timeout: s.timeoutOf(r), Slots: s.slots, Requester: p, Revoke: p.revoke,
		Holds: p.all.turns.Held(),
	}
}

// take gives the passage its turn, unless another request is inside by another engine. err is
// why there is no turn, or nil.
func (p *passage) take(from *engines.Ref, taken serializer.Turn, err error) error {
	if err == nil {
		err = from.CheckRivals(p.about.Queue, taken)
	}
	if err == nil {
		p.turn, p.about.Token, p.about.Position, p.about.Slot = taken, taken.Token(), taken.Position(), cmp.Or(taken.Slot(), p.about.Slot)
	}
	return err
}

// refuse answers a request that does not get a turn. In a dry run, it serves the request
// without one: the storage fails, the queue is paused, or somebody has a real turn.
func (p *passage) refuse(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, err error) error {
	s, refused := p.handler, refusalOf(err)
	if s.DryRun && refused.Reason != serializer.ReasonGone {
		s.report.Ticketless(&p.about, refused)
		return next.ServeHTTP(w, r)
	}
	requestbody.EndConnection(w, r)
	if refused.Reason == serializer.ReasonGone {
		// An error with a status of its own, such as 413 for a body, keeps it.
		s.report.Count(string(refused.Reason))
		p.failure = caddyhttp.Error(requestbody.StatusClientClosed, err)
		return s.answerRefusal(p, w)
	}
	status := s.ErrorCode
	if refused.Reason.IsFailure() || refused.Reason == serializer.ReasonClosed || refused.Reason == telemetry.ReasonVisitEnded {
		status = http.StatusServiceUnavailable
	}
	p.about.Reason, p.about.Position, p.about.Token = refused.Reason, refused.Position, refused.Token
	p.about.PausedUntil = cmp.Or(p.engine, s.engine).PausedUntil(p.about.Queue)
	p.failure = caddyhttp.Error(status, err)
	s.report.Refused(&p.about, status, refused.Err)
	return s.answerRefusal(p, w)
}

// refusalOf returns the refusal that an error means. One with a status of its own is the
// client's fault, and every other one that of the storage.
func refusalOf(err error) *serializer.Refused {
	if refused, ok := errors.AsType[*serializer.Refused](err); ok {
		mine := *refused                    // tabs of one browser share it
		if errors.Is(err, errHoldTimeout) { // of a queue around, whose client is still there
			mine.Reason = serializer.ReasonTimeout
		}
		return &mine
	}
	reason := serializer.ReasonStorage
	if _, ok := errors.AsType[caddyhttp.HandlerError](err); ok && !errors.Is(err, requestbody.ErrFile) {
		reason = serializer.ReasonGone
	}
	return &serializer.Refused{Reason: reason, Err: err}
}

// answerRefusal answers a request that was refused in a passage, also if it comes to its queue again
// by this handler, which may have another `error_response`; the status stays the same. Error routes
// answer what is the client's fault: trying again does not help.
func (s *Handler) answerRefusal(p *passage, w http.ResponseWriter) error {
	failure, _ := errors.AsType[caddyhttp.HandlerError](p.failure)
	p.all.turns.Around().Fail(turncontext.ErrRefused)
	if p.about.Reason == "" && failure.StatusCode < 500 {
		if s.line.Visits != nil { // as in serveInside
			waitingpage.WithholdCookies(w.Header())
		}
		return p.failure
	}
	w.Header().Set("Retry-After", p.retryAfter(time.Now()))
	if s.ErrorResponse == nil || p.all.stream != nil && p.all.stream.begun {
		return p.failure
	}
	w.Header().Set("Content-Type", s.ErrorResponse.ContentType)
	w.WriteHeader(failure.StatusCode)
	_, err := w.Write([]byte(s.ErrorResponse.Body))
	return err
}

// serve runs the next handlers inside, hands the turn over when they have returned, and
// delivers the response.
func (p *passage) serve(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	outcome := p.reportEntry()
	leave := func() { p.leave(outcome) }
	defer leave() // for handlers that panic
	if least := p.handler.successor().least(); least > 0 {
		p.heldUntil = time.Now().Add(least) // last: the upstream must see no shorter time between two requests
	}
	return p.serveInside(w, r, next, leave)
}

// reportEntry reports that the request is inside, and returns the outcome. The turn of a visit
// is reported when it begins.
func (p *passage) reportEntry() (outcome string) {
	if p.visit != nil {
		return telemetry.OutcomeVisiting
	}
	outcome = telemetry.OutcomeEntered
	if p.handler.DryRun {
		rule, _ := p.handler.engineRules() // without readers: who is ahead of this one is not known
		outcome = p.handler.report.DryRun(&p.about, rule.Capacity())
	}
	p.handler.report.Entered(&p.about)
	return outcome
}

// serveInside runs the next handlers with the turn, which ends by leave.
func (p *passage) serveInside(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, leave func()) error {
	s := p.handler
	p.context.Begin(r, p.turn)
	p.response.Init(w, r, &p.context, p.kept())
	if hold := time.Duration(*s.HoldTimeout); hold > 0 {
		timer := time.AfterFunc(hold, func() { p.revoke(errHoldTimeout) })
		defer timer.Stop()
	}
	err := p.response.Serve(p.answering(next), r)
	if hasFailed(p.response.Status(), err) {
		p.turn.SlotFailed()
	}
	leave()
	s.report.TimedOut(&p.about, err)
	if err = p.response.Deliver(err); err != nil && s.line.Visits != nil { // an error route may let caches keep its answer
		waitingpage.WithholdCookies(w.Header())
	}
	return err
}

// leave hands the turn over and ends the passage. Only the first call has an effect. outcome
// is that of a turn that was not taken back.
func (p *passage) leave(outcome string) {
	if p.context.Over() || !p.context.End() {
		return
	}
	p.endTurn()
	var cause error
	if revoked := p.context.Revoked(); revoked != nil {
		cause = revoked.Cause
		if reason := serializer.ReasonOf(cause); reason == serializer.ReasonEvicted || reason == serializer.ReasonLost {
			outcome = string(reason)
		}
	}
	p.handler.report.Left(&p.about, outcome, cause)
}

var errHoldTimeout = errors.New("inside for longer than hold_timeout")

// revokedPatience is how long a revoked request may stay inside before the log says so.
const revokedPatience = 10 * time.Second

// revoke takes the turn back. The turn ends when the handlers have returned.
func (p *passage) revoke(cause error) {
	report := p.handler.report
	if p.handler.DryRun && !errors.Is(cause, serializer.ErrEvicted) {
		return // it must not harm a live site
	}
	inside := p.context.Inside() // soon, it may have left
	if !p.context.Revoke(cause) {
		return
	}
	if inside {
		report.Revoked(&p.about, cause)
	}
	time.AfterFunc(revokedPatience, func() {
		if p.context.Inside() {
			report.StillInside(&p.about, cause)
		}
	})
}

// Request implements [serializer.Requester].
func (p *passage) Request() serializer.Request { return p.about.Request() }

// Prefix is the configured prefix of the request's queue.
func (p *passage) Prefix() string { return p.handler.Prefix }

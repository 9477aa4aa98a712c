package once

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/orderly-http/caddy-orderly/internal/requestid"
	"github.com/orderly-http/caddy-orderly/modules/internal/engines"
	"github.com/orderly-http/caddy-orderly/modules/internal/requestbody"
	"github.com/orderly-http/caddy-orderly/modules/internal/responsebuffer"
	"github.com/orderly-http/caddy-orderly/modules/internal/turncontext"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// This file has one request with a key, from its arrival to its answer: its record is looked up;
// if it has no answer yet, the request waits in line for the first one; if there is still no
// record, this is the first one. It stores that it has begun, the next handlers run, and what
// became of it is stored before anybody learns of it.

// passage is the way of one request through one key.
type passage struct {
	handler *Handler
	key     key
	repl    *caddy.Replacer
	about   serializer.Request // what lists and logs have of it
	id      requestid.ID
	asked   record // what the request is, and what became of it
	outcome string // or "", as of one that waits
	acted   bool   // an upstream may have acted on it, and nobody knows
	turns   *turncontext.Turns
	earlier *passage  // of the request, or nil
	latest  **passage // of the request; a variable has this pointer

	engine   *engines.Ref // with a reference while the passage waits or has the turn
	turn     serializer.Turn
	context  turncontext.Context
	response responsebuffer.Buffer
	sent     attempts

	retryAfters int // how many such fields the answer had before, such as that of a refusal
}

// ServeHTTP runs the first request of a key, and answers the others.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	isSame := func(method string) bool { return strings.EqualFold(method, r.Method) } // some upstreams take patch for PATCH
	if !slices.ContainsFunc(h.Methods, isSame) {
		return next.ServeHTTP(w, r)
	}
	repl := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	text := textOf(h.Key, r, repl)
	if text == "" && !h.Required {
		return next.ServeHTTP(w, r)
	}
	p := h.newPassage(r, repl)
	why, err := p.findKey(text, r.Host)
	if p.comesAgain() {
		return next.ServeHTTP(w, r)
	}
	*p.latest = p
	p.repl.Set("http.once.key", p.key.hash)
	p.become("")
	if why != nil {
		return p.refuse(w, r, why, err)
	}
	p.context.Init(r, true, p.turns)
	body, err := p.readBody(w, r)
	defer body.FreeAfter(p.context.Request())
	if err != nil {
		return err
	}
	found, err := p.load(r)
	if err == nil && (found == nil || found.State == began) {
		defer p.leave() // for storage that panics
		if found, err = p.lineUp(w, r); err == nil && found == nil {
			return p.run(w, r, next)
		}
		p.leave()
	}
	switch {
	case err == nil:
		return p.answer(w, r, found)
	case r.Context().Err() != nil:
		return caddyhttp.Error(requestbody.StatusClientClosed, err)
	}
	return p.refuse(w, r, reasonOf(err), err)
}

// newPassage describes the passage of a request with a key.
func (h *Handler) newPassage(r *http.Request, repl *caddy.Replacer) *passage {
	vars := r.Context().Value(caddyhttp.VarsCtxKey).(map[string]any)
	original := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request)
	address := sha256.Sum256([]byte(original.Method + "\n" + original.URL.RequestURI()))
	p := &passage{handler: h, repl: repl, id: requestid.Of(vars), asked: record{Address: address[:]}}
	p.turns, p.latest = turncontext.TurnsOf(vars, new(turncontext.Turns)), latestOf(vars)
	p.earlier = *p.latest
	p.about = serializer.Request{Method: original.Method, Host: r.Host, Path: original.URL.Path}
	p.about.ClientIP, _ = vars[caddyhttp.ClientIPVarKey].(string)
	return p
}

const latestVar = "orderly.once"

// latestOf is where the latest passage of the request with these variables stands. The variable is
// written once: a proxy's transport may read the variables beside error routes.
func latestOf(vars map[string]any) **passage {
	latest, known := vars[latestVar].(**passage)
	if !known {
		latest = new(*passage)
		vars[latestVar] = latest
	}
	return latest
}

// findKey derives the key from its text, or returns why it cannot.
func (p *passage) findKey(text, host string) (why *reason, err error) {
	if text == "" {
		return noKey, nil
	}
	unquoted, ok := unquote(text)
	if !ok {
		return badKey, nil
	}
	scope := ""
	if p.handler.Scope != scopeNone {
		if scope = p.repl.ReplaceAll(p.handler.Scope, ""); scope == "" {
			return noScope, nil
		}
	}
	if p.key, err = deriveKey(hostOf(host), scope, unquoted); err != nil {
		return failed, err
	}
	return nil, nil
}

// comesAgain reports whether the request comes to a key again that it is the first one of: by a
// second line, a rewrite or an error route. It would wait for itself. An error route is refused if
// an upstream may have acted: it would act again.
func (p *passage) comesAgain() bool {
	for e := p.earlier; e != nil; e = e.earlier {
		if e.outcome == outcomeFirst && e.key.hash == p.key.hash {
			return !e.acted
		}
	}
	return false
}

// readBody reads the request body, which is compared, before anything else.
func (p *passage) readBody(w http.ResponseWriter, r *http.Request) (body *requestbody.Body, err error) {
	if err := requestbody.RefuseIncremental(w, r); err != nil {
		return nil, err
	}
	limits := requestbody.Limits{Memory: int64(*p.handler.Buffer), Disk: int64(*p.handler.BufferDisk)}
	body, err = requestbody.Read(r, limits)
	if err == nil && p.handler.Compare == compareBody {
		p.asked.Sum, err = requestbody.Sum(r)
	}
	if err != nil {
		requestbody.EndConnection(w, r)
	}
	return body, err
}

// load finds the record of the key, or nil.
func (p *passage) load(r *http.Request) (*record, error) {
	return p.handler.records.load(r.Context(), &p.key, time.Duration(*p.handler.Keep), time.Now())
}

// lineUp waits in line for the first request, and finds its record. If there is none, this is the
// first one, and the record says that it has begun.
func (p *passage) lineUp(w http.ResponseWriter, r *http.Request) (found *record, err error) {
	if err := p.enter(w, r); err != nil {
		return nil, err
	}
	if found, err = p.load(r); err == nil && found == nil {
		err = p.begin()
	}
	return found, err
}

// maxWaiting is how many may wait for one key.
const maxWaiting = 8

// queue is that of the key. No queue of serialize begins so by accident.
func (p *passage) queue() string { return "orderly_once_" + p.key.hash + "_" }

// enter takes a ticket in the queue of the key, and waits for the turn. If it returns an error,
// the passage has none.
func (p *passage) enter(w http.ResponseWriter, r *http.Request) (err error) {
	if p.engine, err = p.handler.engine.Acquire(); err != nil {
		return err
	}
	if p.turn, err = p.arrive(w, r); err == nil {
		err = p.engine.CheckOthers(p.queue(), p.turn)
	}
	if err != nil {
		p.turn = nil
		p.engine.Release()
	}
	return err
}

func (p *passage) arrive(w http.ResponseWriter, r *http.Request) (serializer.Turn, error) {
	timeout := time.Duration(*p.handler.Timeout)
	turn, wait, err := p.engine.Arrive(serializer.Arrival{
		Queue: p.queue(), Client: r.RemoteAddr, MaxWaiting: maxWaiting, Timeout: timeout, NoWait: timeout == 0,
		Requester: p, Revoke: func(cause error) { p.context.Revoke(cause) }, Holds: p.turns.Held(),
	})
	if turn != nil || err != nil {
		return turn, err
	}
	ctx, stop := p.context.Waiting(requestbody.Unread(r))
	defer stop()
	defer turncontext.StopTimeouts(w, r)()
	return wait.End(ctx)
}

// leave hands the turn over, if the passage has one.
func (p *passage) leave() {
	if p.turn == nil {
		return
	}
	p.sent.over.Store(true)
	p.context.End()
	p.turn.Leave()
	p.engine.Release()
	p.turn = nil
}

// Request implements [serializer.Requester].
func (p *passage) Request() serializer.Request {
	about := p.about
	if p.id != nil {
		about.TXID = p.id.TXID()
	}
	return about
}

// begin stores that the first request has begun. If that fails, the record may be there
// nevertheless, and is removed, unless the turn is lost: then it may be that of another process.
func (p *passage) begin() error {
	p.asked.State, p.asked.Since = began, time.Now()
	err := p.handler.records.store(&p.key, &p.asked)
	if p.turn.Context().Err() != nil {
		return fmt.Errorf("the turn was taken back: %w", context.Cause(p.turn.Context()))
	}
	if err != nil {
		p.asked.State = free
		p.change()
	}
	return err
}

// change changes the record when it is known what became of the request. If that fails, the record
// says that it has begun, which means that nobody knows more.
func (p *passage) change() {
	if err := p.handler.records.store(&p.key, &p.asked); err != nil {
		p.logSome("record", zap.ErrorLevel, "the outcome of a request could not be stored: repetitions are refused with 409", zap.Error(err))
	}
}

// run lets the first request through to the next handlers, stores what became of it, hands the turn
// over, and then sends the answer.
func (p *passage) run(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	p.become(outcomeFirst)
	p.retryAfters = len(w.Header()["Retry-After"])
	p.repl.Delete("http.reverse_proxy.retries") // of a proxy before; see freeIfUnsent
	p.repl.Delete(latencyPlaceholder)
	r.Header.Del("Accept-Encoding") // a repetition may accept none
	p.sent.latency, p.sent.cut = p.latency, func(cause error) { p.context.Revoke(cause) }
	p.context.Trace(p.sent.trace())
	p.context.Begin(r, p.turn)
	p.response.Init(w, r, &p.context, int64(*p.handler.MaxResponse))
	return p.response.Deliver(p.runInside(r, next))
}

var errPanic = errors.New("a handler panicked")

func (p *passage) runInside(r *http.Request, next caddyhttp.Handler) (err error) {
	defer p.leave()
	became, answer, why := unknown, responsebuffer.Answer{}, errPanic
	defer func() { p.settle(became, answer, why) }()
	err = p.response.Serve(next, r)
	answer, why = p.response.Answer(), err
	became = p.judge(answer, err)
	return err
}

// settle stores what became of the request, unless another process may have the turn, and so the
// record, by now.
func (p *passage) settle(became state, answer responsebuffer.Answer, err error) {
	outcome := outcomeFirst
	p.asked.State = became
	switch became {
	case free:
		outcome = outcomeFreed
	case unknown:
		p.acted = p.mayHaveActed(err)
		p.logSome("unknown "+p.key.hash, zap.WarnLevel, "it is not known whether the upstream has acted: repetitions are refused with 409", zap.Error(err))
	case answered:
		p.asked.Status, p.asked.Body, p.asked.Header = answer.Status, answer.Body, maps.Clone(answer.Header)
		maps.DeleteFunc(p.asked.Header, func(name string, _ []string) bool { return !p.handler.repeats(name) })
	}
	if became != free { // or the record of the beginning is not found
		p.asked.Since = time.Now()
	}
	if serializer.ReasonOf(context.Cause(p.turn.Context())) != serializer.ReasonLost {
		p.change()
	}
	p.count(outcome)
}

// answer answers a repetition by the record of the key.
func (p *passage) answer(w http.ResponseWriter, r *http.Request, found *record) error {
	switch {
	case !found.sameRequest(&p.asked):
		return p.refuse(w, r, mismatch, nil)
	case found.State == notKept:
		return p.refuse(w, r, unkept, nil)
	case found.State != answered:
		return p.refuse(w, r, unclear, nil)
	}
	p.count(outcomeRepeated)
	maps.Copy(w.Header(), found.Header)
	w.Header().Set("Idempotent-Replayed", "true")
	w.WriteHeader(found.Status)
	if len(found.Body) == 0 { // a status such as 204 allows none
		return nil
	}
	_, err := w.Write(found.Body)
	return err
}

// refuse answers a request itself. The next handlers never see it.
func (p *passage) refuse(w http.ResponseWriter, r *http.Request, why *reason, err error) error {
	level := zap.InfoLevel
	if why == failed {
		level = zap.ErrorLevel
	}
	kind := why.name
	if why == unclear { // whoever looks into the application needs all of them
		kind += " " + p.key.hash
	}
	p.logSome(kind, level, "refused", zap.String("reason", why.name), zap.Error(err))
	p.count(why.name)
	p.turns.Around().Fail(turncontext.ErrRefused)
	return why.answer(w, r)
}

// become notes an outcome. The placeholders answer for the latest passage of a request.
func (p *passage) become(outcome string) {
	p.outcome = outcome
	p.repl.Set("http.once.outcome", outcome)
}

func (p *passage) count(outcome string) {
	p.become(outcome)
	requests.WithLabelValues(outcome).Inc()
}

// logSome writes a log entry that names the key's hash and the request: one of a kind in a second.
func (p *passage) logSome(kind string, level zapcore.Level, message string, more ...zap.Field) {
	p.handler.throttle.Do(kind, func(count int) {
		c := p.handler.log.Check(level, message)
		if c == nil {
			return
		}
		about := p.Request()
		c.Write(append(more, zap.String("key", p.key.hash), zap.String("method", about.Method), zap.String("host", about.Host), zap.String("path", about.Path),
			zap.String("client_ip", about.ClientIP), zap.String("txid", about.TXID), zap.Int("count", count))...)
	})
}

// Interface guards
var _ serializer.Requester = (*passage)(nil)

package once

import (
	"bytes"
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
	asked   record             // what the request is, and what became of it
	turns   *turncontext.Turns

	engine   *engines.Ref // with a reference while the passage waits or has the turn
	turn     serializer.Turn
	context  turncontext.Context
	response responsebuffer.Buffer
	sent     attempts
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
	err := p.findKey(text, r.Host)
	repl.Set("http.once.key", p.key.hash)
	if again, _ := repl.Get(p.again()); again == true && err == nil { // in an error route, the turn is over
		p.sent.repl, p.sent.cut = repl, turncontext.Trace(r, p.sent.trace())
		return next.ServeHTTP(w, r)
	}
	w.Header().Del("Retry-After") // of a queue before that has refused the request
	if err != nil {
		return p.refuse(w, r, err)
	}
	p.context.Init(r, true, p.turns)
	body, err := p.readBody(w, r)
	defer body.FreeAfter(p.context.Request())
	if err != nil {
		requestbody.EndConnection(w, r)
		return err
	}
	found, err := p.find(w, r)
	if err == nil && found == nil {
		return p.run(w, r, next)
	}
	p.leave()
	switch {
	case err != nil:
		return p.refuse(w, r, err)
	case !found.sameRequest(&p.asked):
		return p.refuse(w, r, mismatch)
	case found.Outcome != repeated:
		return p.refuse(w, r, found.Outcome)
	}
	return p.repeat(w, found)
}

// newPassage describes the passage of a request with a key.
func (h *Handler) newPassage(r *http.Request, repl *caddy.Replacer) *passage {
	vars := r.Context().Value(caddyhttp.VarsCtxKey).(map[string]any)
	original := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request)
	address := sha256.Sum256([]byte(original.Method + "\n" + original.URL.RequestURI()))
	p := &passage{handler: h, repl: repl, asked: record{Address: address[:]}, turns: turncontext.TurnsOf(vars, new(turncontext.Turns))}
	p.about = serializer.Request{Method: original.Method, Host: r.Host, Path: original.URL.Path}
	p.about.ClientIP, _ = vars[caddyhttp.ClientIPVarKey].(string)
	if id := requestid.Of(vars); id != nil {
		p.about.TXID = id.TXID()
	}
	return p
}

// Request implements [serializer.Requester].
func (p *passage) Request() serializer.Request { return p.about }

// findKey derives the key from its text.
func (p *passage) findKey(text, host string) (err error) {
	unquoted, ok := unquote(text)
	scope := p.repl.ReplaceAll(p.handler.Scope, "")
	switch {
	case text == "":
		return noKey
	case !ok:
		return badKey
	case scope == "":
		return noScope
	case p.handler.Scope == scopeNone:
		scope = ""
	}
	p.key, err = deriveKey(hostOf(host), scope, unquoted)
	return err
}

// again names what is true while the request may come to a key again that it is the first one of: by a
// second line, a rewrite or an error route. It would wait for itself. An error route is refused if an
// upstream may have acted: it would act again. Unlike the request's variables, which a proxy's transport
// may read meanwhile, placeholders may be set at any time.
func (p *passage) again() string { return "http.once.again." + p.key.hash }

// readBody reads the request body, which is compared, before anything else.
func (p *passage) readBody(w http.ResponseWriter, r *http.Request) (body *requestbody.Body, err error) {
	if err = requestbody.RefuseIncremental(w, r); err == nil {
		body, err = requestbody.Read(r, requestbody.Limits{Memory: int64(*p.handler.Buffer), Disk: int64(*p.handler.BufferDisk)})
	}
	if err == nil && p.handler.Compare == compareBody {
		p.asked.Sum, err = requestbody.Sum(r)
	}
	return body, err
}

// find finds the record of the key. Unless that has an answer, the request waits in line for the first
// one before. If there is no record, this is the first one, and the record says that it has begun.
func (p *passage) find(w http.ResponseWriter, r *http.Request) (found *record, err error) {
	load := func() (*record, error) {
		return p.handler.records.load(r.Context(), &p.key, time.Duration(*p.handler.Keep), time.Now())
	}
	if found, err = load(); err != nil || found != nil && found.Outcome != unknown {
		return found, err
	}
	if err = p.enter(w, r); err != nil {
		return nil, err
	}
	if found, err = load(); err == nil && found == nil {
		err = p.begin()
	}
	return found, err
}

// maxWaiting is how many may wait for one key.
const maxWaiting = 8

// enter takes a ticket in the queue of the key, and waits for the turn.
func (p *passage) enter(w http.ResponseWriter, r *http.Request) (err error) {
	if p.engine, err = p.handler.engine.Acquire(); err != nil {
		return err
	}
	queue := "orderly_once_" + p.key.hash + "_" // no queue of serialize begins so by accident
	timeout := time.Duration(*p.handler.Timeout)
	turn, wait, err := p.engine.Arrive(serializer.Arrival{
		Queue: queue, Client: r.RemoteAddr, MaxWaiting: maxWaiting, Timeout: timeout, NoWait: timeout == 0,
		Requester: p, Revoke: func(cause error) { p.context.Revoke(cause) }, Holds: p.turns.Held(),
	})
	if turn == nil && err == nil {
		ctx, stop := p.context.Waiting(false)
		defer stop()
		defer turncontext.StopTimeouts(w, r)()
		turn, err = wait.End(ctx)
	}
	if err == nil {
		err = p.engine.CheckOthers(queue, turn)
	}
	if err == nil {
		p.turn = turn
	}
	return err
}

// leave hands the turn over, if the passage has one.
func (p *passage) leave() {
	if p.engine == nil {
		return
	}
	if p.turn != nil {
		p.sent.open.Store(false) // an error route may send another request
		p.context.End()
		p.turn.Leave()
	}
	p.engine.Release()
	p.engine, p.turn = nil, nil
}

// begin stores that the first request has begun. If that fails, the record may be there nevertheless, or
// come later, and is removed.
func (p *passage) begin() error {
	p.asked.Outcome, p.asked.Since = unknown, time.Now()
	turn := p.turn
	ended, err := p.handler.records.store(&p.key, &p.asked)
	if cause := context.Cause(turn.Context()); cause != nil {
		err = fmt.Errorf("the turn was taken back: %w", cause)
	}
	if err != nil {
		p.leaveAfter(func() {
			<-ended
			p.remove(turn)
		})
	}
	return err
}

// remove removes the record of a request that has not run. If it cannot within a minute, repetitions are
// refused.
func (p *passage) remove(turn serializer.Turn) {
	for begun := time.Now(); !isLost(turn) && time.Since(begun) < time.Minute; time.Sleep(time.Second) {
		ended, err := p.handler.records.store(&p.key, &record{Outcome: freed, Since: p.asked.Since})
		if <-ended; err == nil || turn.Context().Err() != nil { // of an evicted turn, a lost lease is not seen
			return
		}
	}
}

// leaveAfter hands the turn over later, when the storage has ended what it was asked for. Until then, that
// could hit the record of the next request.
func (p *passage) leaveAfter(ended func()) {
	turn, engine := p.turn, p.engine
	p.turn, p.engine = nil, nil
	p.sent.open.Store(false) // an error route may send another request
	p.context.End()
	go func() {
		ended()
		turn.Leave()
		engine.Release()
	}()
}

// isLost reports whether another process may have the turn, and so the record, by now.
func isLost(turn serializer.Turn) bool {
	return serializer.ReasonOf(context.Cause(turn.Context())) == serializer.ReasonLost
}

// run lets the first request through to the next handlers, stores what became of it, hands the turn
// over, and then sends the answer.
func (p *passage) run(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	p.sent.repl, p.sent.cut = p.repl, func(cause error) { p.context.Revoke(cause) }
	if _, another := p.repl.Get(runsPlaceholder); !another { // around, with a key of its own, which needs the notes
		p.sent.forgetNotes()
		p.repl.Set(runsPlaceholder, true)
		defer p.repl.Delete(runsPlaceholder)
	}
	p.repl.Set(outcomePlaceholder, string(first))
	p.repl.Set(p.again(), true)
	r.Header.Del("Accept-Encoding") // a repetition may accept none
	p.context.Begin(r, p.turn)
	turncontext.Trace(r, p.sent.trace())
	p.response.Init(w, r, &p.context, int64(*p.handler.MaxResponse))
	return p.response.Deliver(p.runInside(r, next))
}

var errPanic = errors.New("a handler panicked")

func (p *passage) runInside(r *http.Request, next caddyhttp.Handler) (err error) {
	defer p.leave()
	err = errPanic
	defer func() { p.settle(err) }() // before the turn is handed over
	err = p.response.Serve(next, r)
	answer := p.response.Answer()
	if p.asked.Outcome = p.judge(answer, err); p.asked.Outcome == repeated {
		header, fields := maps.Clone(answer.Header), new(bytes.Buffer)
		maps.DeleteFunc(header, func(name string, _ []string) bool { return !p.handler.repeats(name) })
		_ = header.Write(fields) // in memory
		p.asked.Status, p.asked.Body, p.asked.Fields = answer.Status, answer.Body, fields.Bytes()
	}
	return err
}

// settle stores what became of the request.
func (p *passage) settle(err error) {
	counted, passes := first, false
	switch p.asked.Outcome {
	case freed:
		counted = freed
	case unknown:
		sent, _ := p.sent.reached()
		passes = !sent
		p.logSome("unknown "+p.key.hash, zap.WarnLevel, "it is not known whether the upstream has acted: repetitions are refused with 409", zap.Error(err))
	}
	p.repl.Set(p.again(), passes)
	if counted != freed { // or the record of the beginning is not found
		p.asked.Since = time.Now()
	}
	if !isLost(p.turn) {
		if ended, err := p.handler.records.store(&p.key, &p.asked); err != nil { // it says that the request has begun, which means that nobody knows more
			p.logSome("record "+p.key.hash, zap.ErrorLevel, "the outcome of a request could not be stored: repetitions are refused with 409", zap.Error(err))
			p.leaveAfter(func() { <-ended })
		}
	}
	p.count(counted)
	if p.asked.Outcome == unknown {
		p.repl.Set(outcomePlaceholder, string(unknown)) // for the pages of error routes
	}
}

// repeat answers a repetition by the record of the key.
func (p *passage) repeat(w http.ResponseWriter, found *record) error {
	p.count(repeated)
	fields := make(http.Header)
	for line := range strings.SplitSeq(string(found.Fields), "\r\n") {
		if name, value, ok := strings.Cut(line, ": "); ok {
			fields.Add(name, value)
		}
	}
	maps.Copy(w.Header(), fields)
	w.Header().Set("Idempotent-Replayed", "true")
	w.WriteHeader(found.Status)
	if len(found.Body) == 0 { // a status such as 204 allows none
		return nil
	}
	_, err := w.Write(found.Body)
	return err
}

// refuse answers a request itself. The next handlers never see it.
func (p *passage) refuse(w http.ResponseWriter, r *http.Request, err error) error {
	why := outcomeOf(err)
	if r.Context().Err() != nil {
		return caddyhttp.Error(requestbody.StatusClientClosed, err)
	}
	level, kind := zap.InfoLevel, string(why)
	switch why {
	case failed:
		level = zap.ErrorLevel
	case unknown: // an operator who checks the application needs all of them
		level, kind = zap.WarnLevel, kind+" "+p.key.hash
	}
	p.logSome(kind, level, "refused", zap.String("reason", string(why)), zap.Error(err))
	p.count(why)
	p.turns.Around().Fail(turncontext.ErrRefused)
	return why.answer(w, r)
}

func (p *passage) count(o outcome) {
	p.repl.Set(outcomePlaceholder, string(o))
	requests.WithLabelValues(string(o)).Inc()
}

// logSome writes a log entry that names the key's hash and the request: one of a kind in a second.
func (p *passage) logSome(kind string, level zapcore.Level, message string, more ...zap.Field) {
	p.handler.throttle.Do(kind, func(count int) {
		if c := p.handler.log.Check(level, message); c != nil {
			c.Write(append(more, zap.String("key", p.key.hash), zap.String("method", p.about.Method), zap.String("host", p.about.Host),
				zap.String("path", p.about.Path), zap.String("client_ip", p.about.ClientIP), zap.String("txid", p.about.TXID), zap.Int("count", count))...)
		}
	})
}

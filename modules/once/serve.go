package once

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/orderly-http/caddy-orderly/internal/requestid"
	"github.com/orderly-http/caddy-orderly/modules/internal/engines"
	"github.com/orderly-http/caddy-orderly/modules/internal/heldturns"
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
	handler      *Handler
	key          key
	vars         map[string]any
	repl         *caddy.Replacer
	about        serializer.Request // what lists and logs have of it
	id           requestid.ID
	asked        record // what the request is, in the form of a record
	inErrorRoute bool
	outcome      string // or ""
	earlier      *passage

	engine   *engines.Ref // with a reference while the passage waits or has the turn
	turn     serializer.Turn
	context  turncontext.Context
	response responsebuffer.Buffer
	sent     attempts
	ran      bool // this is the first request
}

// ServeHTTP runs the first request of a key, and answers the others.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if !slices.Contains(h.Methods, r.Method) {
		return next.ServeHTTP(w, r)
	}
	repl := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	text := repl.ReplaceAll(h.Key, "")
	if text == "" && !h.Required {
		return next.ServeHTTP(w, r)
	}
	p, why, err := h.newPassage(r, repl, text)
	switch {
	case err != nil:
		return caddyhttp.Error(http.StatusInternalServerError, err)
	case p.hasRun():
		return next.ServeHTTP(w, r)
	}
	all := p.add(r)
	if why != nil {
		return p.refuse(w, r, all, why, nil)
	}
	if err := p.readBody(w, r); err != nil {
		return err
	}
	if found, err := p.look(r.Context()); err != nil {
		return p.refuseWaiter(w, r, all, err)
	} else if found != nil && found.State != began {
		return p.answer(w, r, all, found)
	}
	if err := p.wait(w, r); err != nil {
		return p.refuseWaiter(w, r, all, err)
	}
	defer p.leave() // for handlers that panic
	found, err := p.look(r.Context())
	if err == nil && found == nil {
		err = p.begin()
	}
	if err != nil || found != nil {
		p.leave()
	}
	switch {
	case err != nil:
		return p.refuseWaiter(w, r, all, err)
	case found != nil:
		return p.answer(w, r, all, found)
	}
	return p.run(w, r, next)
}

// newPassage describes the passage of a request with a key. why is what is wrong with that, or nil.
func (h *Handler) newPassage(r *http.Request, repl *caddy.Replacer, text string) (p *passage, why *reason, err error) {
	vars := r.Context().Value(caddyhttp.VarsCtxKey).(map[string]any)
	original := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request)
	address := sha256.Sum256([]byte(original.Method + "\n" + original.URL.RequestURI()))
	p = &passage{handler: h, vars: vars, repl: repl, id: requestid.Of(vars), asked: record{Address: address[:]}}
	_, p.inErrorRoute = repl.Get("http.error")
	p.about = serializer.Request{Method: original.Method, Host: r.Host, Path: original.URL.Path}
	p.about.ClientIP, _ = vars[caddyhttp.ClientIPVarKey].(string)
	if text == "" {
		return p, noKey, nil
	}
	unquoted, ok := unquote(text)
	if !ok {
		return p, badKey, nil
	}
	scope := ""
	if h.Scope != scopeNone {
		if scope = repl.ReplaceAll(h.Scope, ""); scope == "" {
			return p, noScope, nil
		}
	}
	p.key, err = deriveKey(hostOf(r.Host), scope, unquoted)
	return p, nil, err
}

// leastPatience is how long the storage may take before a request runs, though its timeout is
// shorter.
const leastPatience = 5 * time.Second

// limit gives the storage its time. Neither the body nor the wait takes of it.
func (p *passage) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, max(time.Duration(*p.handler.Timeout), leastPatience))
}

// passages is what is known of one request. A variable of the request has it.
type passages struct {
	latest  *passage
	refused int // the status of the latest refusal, or 0
}

// hasRun reports whether the request comes to a key again that it is the first one of: by a second
// line, a rewrite or an error route. It would wait for itself.
func (p *passage) hasRun() bool {
	all, _ := p.vars[heldturns.Once].(*passages)
	for e := all.last(); e != nil; e = e.earlier {
		if e.ran && e.key.hash == p.key.hash {
			return true
		}
	}
	return false
}

func (all *passages) last() *passage {
	if all == nil {
		return nil
	}
	return all.latest
}

// add makes a passage the request's latest one, which placeholders answer for.
func (p *passage) add(r *http.Request) *passages {
	all, _ := p.vars[heldturns.Once].(*passages)
	if all == nil {
		all = new(passages)
		p.vars[heldturns.Once] = all
		p.repl.Map(func(name string) (any, bool) {
			switch name {
			case "http.once.key":
				return all.latest.key.hash, true
			case "http.once.outcome":
				return all.latest.outcome, true
			}
			return nil, false
		})
	}
	p.earlier, all.latest = all.latest, p
	return all
}

// Held implements [heldturns.Holder].
func (all *passages) Held(turns []serializer.Turn) []serializer.Turn {
	for p := all.latest; p != nil; p = p.earlier {
		if p.turn != nil {
			turns = append(turns, p.turn)
		}
	}
	return turns
}

// Innermost implements [heldturns.Holder].
func (all *passages) Innermost() *turncontext.Context {
	for p := all.latest; p != nil; p = p.earlier {
		if p.context.Inside() {
			return &p.context
		}
	}
	return nil
}

// Refused implements [heldturns.Holder].
func (all *passages) Refused() (status int) { return all.refused }

// readBody reads the request body, which is compared, before anything else.
func (p *passage) readBody(w http.ResponseWriter, r *http.Request) (err error) {
	if err := requestbody.RefuseIncremental(w, r); err != nil {
		return err
	}
	limits := requestbody.Limits{Memory: int64(*p.handler.Buffer), Disk: int64(*p.handler.BufferDisk)}
	body, err := requestbody.Read(r, limits)
	if body != nil {
		context.AfterFunc(r.Context(), body.Free) // error routes may read it, too
	}
	if err == nil && p.handler.Compare == compareBody {
		p.asked.Sum, err = requestbody.Sum(r)
	}
	if err != nil && requestbody.Unread(r) {
		w.Header().Set("Connection", "close") // or net/http would wait for the rest before it answers
	}
	return err
}

// look finds the record of the key, or nil.
func (p *passage) look(ctx context.Context) (*record, error) {
	ctx, cancel := p.limit(ctx)
	defer cancel()
	return p.handler.records.load(ctx, &p.key, p.handler.keepTime(), time.Now())
}

// maxWaiting is how many may wait for one key.
const maxWaiting = 8

// wait takes a ticket in the queue of the key, and waits for the turn. If it returns an error,
// the passage has none.
func (p *passage) wait(w http.ResponseWriter, r *http.Request) (err error) {
	p.context.Init(r, true, heldturns.Around(p.vars))
	if p.engine, err = p.handler.engine.Acquire(); err != nil {
		return err
	}
	if p.turn, err = p.enter(w, r); err == nil {
		err = p.engine.CheckRivals(p.queue(), p.turn)
	}
	if err != nil {
		p.turn = nil
		p.engine.Release()
	}
	return err
}

// queue is that of the key. No queue of serialize begins so by accident.
func (p *passage) queue() string { return "orderly_once_" + p.key.hash + "_" }

func (p *passage) enter(w http.ResponseWriter, r *http.Request) (serializer.Turn, error) {
	timeout := time.Duration(*p.handler.Timeout)
	turn, wait, err := p.engine.Arrive(serializer.Arrival{
		Queue: p.queue(), Client: r.RemoteAddr, MaxWaiting: maxWaiting, Timeout: timeout, NoWait: timeout == 0,
		Requester: p, Revoke: func(cause error) { p.context.Revoke(cause) }, Holds: heldturns.Of(p.vars),
	})
	if turn != nil || err != nil {
		return turn, err
	}
	ctx, stop := p.context.Waiting(requestbody.Unread(r))
	defer stop()
	defer turncontext.StopTimeouts(w, r)()
	return wait.End(ctx)
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
	p.asked.State, p.asked.Began = began, time.Now()
	ctx, cancel := p.limit(context.Background())
	defer cancel()
	err := p.handler.records.store(ctx, &p.key, &p.asked)
	if lost := p.turn.Context().Err(); lost != nil {
		return fmt.Errorf("the turn was taken back: %w", context.Cause(p.turn.Context()))
	}
	if err != nil {
		p.finally(func(ctx context.Context) error { return p.handler.records.remove(ctx, &p.key, &p.asked) })
	}
	return err
}

// storePatience is how long the storage may take when the next handlers have run.
const storePatience = 10 * time.Second

// finally changes the record when it is known what becomes of the key. If that fails, the record
// says that the request has begun, which means that nobody knows more.
func (p *passage) finally(change func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), storePatience)
	defer cancel()
	if err := change(ctx); err != nil {
		p.logSome("record", zap.ErrorLevel, "the outcome of a request could not be stored: repetitions are refused with 409", zap.Error(err))
	}
}

// run lets the first request through to the next handlers, and stores what became of it before
// its client learns of it.
func (p *passage) run(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	p.ran, p.outcome = true, outcomeFirst
	if accepted, ok := r.Header["Accept-Encoding"]; ok { // a repetition may accept none
		delete(r.Header, "Accept-Encoding")
		defer func() { r.Header["Accept-Encoding"] = accepted }()
	}
	p.sent.cut = func(cause error) { p.context.Revoke(cause) }
	p.context.Trace(p.sent.trace())
	p.context.Begin(r)
	p.response.Init(w, r, &p.context, int64(*p.handler.MaxResponse))
	settled := false
	defer func() {
		if !settled {
			p.settle(unknown, responsebuffer.Answer{}, errors.New("a handler panicked"))
		}
	}()
	err := p.response.Serve(next, r)
	verdict, answer := p.judge(err)
	settled = true
	p.settle(verdict, answer, err)
	p.leave()
	return p.response.Deliver(err)
}

// settle stores what becomes of the key.
func (p *passage) settle(verdict verdict, answer responsebuffer.Answer, err error) {
	kept := p.asked
	kept.Ended = time.Now()
	change := func(ctx context.Context) error { return p.handler.records.store(ctx, &p.key, &kept) }
	switch verdict {
	case unknown: // the record says so already, but not since when
		p.logSome("unknown", zap.WarnLevel, "it is not known whether the upstream has acted: repetitions are refused with 409", zap.Error(err))
		if p.hasLost() {
			p.count(outcomeFirst)
			return
		}
	case free:
		p.finally(func(ctx context.Context) error { return p.handler.records.remove(ctx, &p.key, &kept) })
		p.count(outcomeFreed)
		return
	case noKeep:
		kept.State = notKept
	case keep:
		kept.State, kept.Status, kept.Body = answered, answer.Status, answer.Body
		kept.Header = maps.Clone(answer.Header)
		maps.DeleteFunc(kept.Header, func(name string, _ []string) bool { return !p.handler.repeats(name) })
	}
	p.finally(change)
	p.count(outcomeFirst)
}

// hasLost reports whether another process may have the turn, and so the record, by now.
func (p *passage) hasLost() bool {
	return serializer.ReasonOf(context.Cause(p.turn.Context())) == serializer.ReasonLost
}

// leave hands the turn over. Only the first call has an effect.
func (p *passage) leave() {
	if p.turn == nil {
		return
	}
	p.context.End()
	p.turn.Leave()
	p.engine.Release()
	p.turn = nil
}

// answer answers a repetition by the record of the key.
func (p *passage) answer(w http.ResponseWriter, r *http.Request, all *passages, found *record) error {
	switch {
	case found.damaged:
		return p.refuse(w, r, all, unclear, errDamaged)
	case !found.sameRequest(&p.asked):
		return p.refuse(w, r, all, mismatch, nil)
	case found.State == notKept:
		return p.refuse(w, r, all, unkept, nil)
	case found.State != answered:
		return p.refuse(w, r, all, unclear, nil)
	}
	p.count(outcomeRepeated)
	maps.Copy(w.Header(), found.Header)
	w.Header().Set("Idempotent-Replayed", "true")
	if len(found.Body) > 0 {
		w.Header().Set("Content-Length", strconv.Itoa(len(found.Body)))
	}
	w.WriteHeader(found.Status)
	if len(found.Body) == 0 {
		return nil
	}
	_, err := w.Write(found.Body)
	return err
}

// refuseWaiter answers a request that did not get its turn, or whose record could not be read.
func (p *passage) refuseWaiter(w http.ResponseWriter, r *http.Request, all *passages, err error) error {
	_, refused := errors.AsType[*serializer.Refused](err)
	switch reason := serializer.ReasonOf(err); {
	case r.Context().Err() != nil:
		return caddyhttp.Error(requestbody.StatusClientClosed, err)
	case !refused || reason.IsFailure() || reason == serializer.ReasonClosed:
		return p.refuse(w, r, all, failed, err)
	}
	return p.refuse(w, r, all, running, err)
}

// refuse answers a request itself. The next handlers never see it.
func (p *passage) refuse(w http.ResponseWriter, r *http.Request, all *passages, why *reason, err error) error {
	level := zap.InfoLevel
	if why == failed {
		level = zap.ErrorLevel
	}
	p.logSome(why.name, level, "refused", zap.String("reason", why.name), zap.Error(err))
	p.count(why.name)
	all.refused = why.status
	return why.answer(w, r)
}

func (p *passage) count(outcome string) {
	p.outcome = outcome
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
var (
	_ serializer.Requester = (*passage)(nil)
	_ heldturns.Holder     = (*passages)(nil)
)

// Package telemetry reports what happens to requests: it counts them, writes log entries,
// spans and events, and estimates how long waiters will wait. It decides nothing.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/orderly-http/caddy-orderly/internal/throttle"
	"github.com/orderly-http/caddy-orderly/modules/internal/requestbody"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueview"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// Reporter reports what happens to the requests of one handler.
type Reporter struct {
	*Counters
	throttle.Throttle[serializer.Reason] // of log entries, by kind
	Logger                               *zap.Logger

	ctx    caddy.Context    // of the configuration
	events *caddyevents.App // may be nil
}

// NewReporter returns the reporter of a handler. Every configuration with an HTTP server
// has Caddy's events app.
func NewReporter(ctx caddy.Context, counters *Counters) (*Reporter, error) {
	r := &Reporter{Counters: counters, Logger: ctx.Logger(), ctx: ctx}
	app, err := ctx.AppIfConfigured("events")
	if err != nil && !errors.Is(err, caddy.ErrNotConfigured) {
		return nil, fmt.Errorf("loading events: %w", err)
	}
	r.events, _ = app.(*caddyevents.App)
	return r, nil
}

// Admitted reports that a request need not wait: its turn has come at once.
func (r *Reporter) Admitted(q *Request) {
	q.Since = time.Now()
	r.waitTimes.Observe(0)
}

// Waits reports that a request has begun to wait.
func (r *Reporter) Waits(ctx context.Context, q *Request) {
	q.startSpan(ctx)
	q.Since = time.Now()
	r.Waiting.Add(1)
}

// Waited reports that a request waits no longer. It has its turn if err is nil.
func (r *Reporter) Waited(q *Request, err error) {
	now := time.Now()
	q.Waited = now.Sub(q.Since)
	r.Waiting.Add(-1)
	r.waitTimes.Observe(q.Waited.Seconds())
	q.Since = now
	q.endSpan(err)
}

// Entered reports that a request is inside. It has been since its wait ended.
func (r *Reporter) Entered(q *Request) {
	r.Inside.Add(1)
	r.logHold(q, zap.DebugLevel, "entered", nil)
}

// Ended reports that a turn has ended, which may be later than its request has left. If it was brief,
// as beside visits, its hold says nothing about others.
func (r *Reporter) Ended(q *Request, brief bool) {
	held := time.Since(q.Since)
	r.Inside.Add(-1)
	r.holdTimes.Observe(held.Seconds())
	if !brief {
		r.Hold.add(held)
	}
}

// Left reports that a request has left. revoked is why its turn was taken back, or nil.
func (r *Reporter) Left(q *Request, outcome string, revoked error) {
	r.Count(outcome)
	r.logHold(q, zap.DebugLevel, "left", revoked)
}

// VisitEnded reports that a visit has ended. Its requests have left by themselves.
func (r *Reporter) VisitEnded(q *Request) {
	r.Ended(q, false)
	r.logHold(q, zap.DebugLevel, "visit ended", nil)
}

// TimedOut reports that a request has left because the next handlers no longer waited for
// their upstream, if err is a timeout. Caddy logs nothing about it where error routes answer.
func (r *Reporter) TimedOut(q *Request, err error) {
	if failed, ok := errors.AsType[net.Error](err); ok && failed.Timeout() {
		r.logSome(q, "timed out", zap.WarnLevel, "left after its handlers timed out; a script may still be running beside the next request",
			zap.Duration("hold", time.Since(q.Since)), bare(err))
	}
}

// Revoked reports that the turn of a request inside was taken back.
func (r *Reporter) Revoked(q *Request, cause error) {
	r.logHold(q, zap.WarnLevel, "turn revoked", cause)
}

// StillInside reports that a revocation has had no effect for a while.
func (r *Reporter) StillInside(q *Request, cause error) {
	r.logHold(q, zap.WarnLevel, "still inside, long after its turn was revoked: its handlers ignore the cancellation, and others wait; "+
		queueview.FastCGIText, cause)
}

// logHold writes a log entry about a request that is inside, or was until now.
func (r *Reporter) logHold(q *Request, level zapcore.Level, message string, revoked error) {
	if c := r.Logger.Check(level, message); c != nil {
		c.Write(zap.String("queue", q.Queue), zap.String("token", q.token()), q.txid(),
			zap.Duration("hold", time.Since(q.Since)), zap.NamedError("cause", revoked))
	}
}

// Refused reports that a request was refused with a status, because of err.
func (r *Reporter) Refused(q *Request, status int, err error) {
	r.Count(string(q.Reason))
	level := zap.WarnLevel
	switch {
	case q.Reason == serializer.ReasonStorage:
		level = zap.ErrorLevel
	case q.Reason == serializer.ReasonSuperseded, q.Reason == ReasonVisitEnded, !q.Opens.IsZero(): // which are meant to happen
		level = zap.InfoLevel
	}
	if level > zap.InfoLevel {
		r.Outcomes[string(q.Reason)].Refused.Store(time.Now().UnixNano())
	}
	paused := zap.Skip()
	if q.PausedUntil != nil {
		paused = zap.Bool("paused", true)
	}
	r.logSome(q, q.Reason, level, "refused", paused, zap.String("reason", string(q.Reason)),
		zap.Int("position", q.Position), zap.Duration("wait", q.Waited), bare(err))
	r.emitRefusal(q, status)
}

// TooLarge reports that a request was refused because of its body.
func (r *Reporter) TooLarge(q *Request, err error) {
	r.logSome(q, "body", zap.WarnLevel,
		"refused: the request body is larger than `buffer` allows; raise it, or stream bodies with `buffer off`", bare(err))
}

// Stricter reports that a request is inside by one line, and was refused by another one.
func (r *Reporter) Stricter(q *Request, inside, comes string) {
	r.logSome(q, "stricter", zap.ErrorLevel,
		"refused: the request is inside by a line that is less strict than this one of the same queue",
		zap.String("inside_by", inside), zap.String("comes_to", comes))
}

// Unanswered reports that a client got an event in place of a response that failed, since it had
// got the head of an event stream already. Caddy does not log err, and its access log has 200.
func (r *Reporter) Unanswered(q *Request, err error) {
	failed, _ := errors.AsType[caddyhttp.HandlerError](err)
	if failed.StatusCode == requestbody.StatusClientClosed {
		return // nobody was there to be answered
	}
	r.Logger.Error("failed after the head of an event stream, so not with its status",
		zap.String("queue", q.Queue), q.txid(), zap.Int("status", failed.StatusCode), bare(err))
}

// Ticketless reports that a request of a dry run passes without a turn: the storage fails, or
// the real queue keeps it waiting.
func (r *Reporter) Ticketless(q *Request, refused *serializer.Refused) {
	if !refused.Reason.IsFailure() {
		q.Token, q.Position = refused.Token, refused.Position
		r.Count(r.DryRun(q, 0))
		return
	}
	r.Count(string(refused.Reason))
	r.logSome(q, refused.Reason, zap.ErrorLevel, "dry run: passed without a ticket; a queue would have refused it",
		zap.String("reason", string(refused.Reason)), bare(refused))
}

// DryRun reports what a request of a dry run would have met in a real queue, with limit requests
// inside at most, and returns the outcome.
func (r *Reporter) DryRun(q *Request, limit int) (outcome string) {
	if q.Position < limit {
		return OutcomeWouldEnter
	}
	d := q.Described
	r.logSome(q, OutcomeWouldWait, zap.InfoLevel, "dry run: would have waited",
		zap.String("token", q.token()), zap.Int("position", q.Position), zap.String("method", d.Method),
		zap.String("host", d.Host), zap.String("path", d.Path), zap.String("client_ip", d.ClientIP))
	return OutcomeWouldWait
}

// logSome writes a log entry of a kind, at most once a second. The entry says how many
// requests it stands for.
func (r *Reporter) logSome(q *Request, kind serializer.Reason, level zapcore.Level, message string, more ...zap.Field) {
	r.Do(kind, func(count int) {
		if c := r.Logger.Check(level, message); c != nil {
			fields := append([]zap.Field{zap.String("queue", q.Queue)}, more...)
			c.Write(append(fields, zap.Int("count", count), q.txid())...)
		}
	})
}

// bare is an error without the status and the place in the code that Caddy adds.
func bare(err error) zap.Field {
	if failed, ok := errors.AsType[caddyhttp.HandlerError](err); ok {
		err = failed.Err
	}
	return zap.Error(err)
}

// eventRefused is the event of a refused request.
const eventRefused = "serialize_refused"

// emitRefusal emits the event of a refusal, if it has subscribers. Requests of a replaced
// configuration emit none.
func (r *Reporter) emitRefusal(q *Request, status int) {
	if r.events == nil || !r.events.ShouldEmit(eventRefused) || r.ctx.Err() != nil {
		return
	}
	request := q.Request()
	r.events.Emit(r.ctx, eventRefused, map[string]any{
		"queue":     q.Queue,
		"reason":    string(q.Reason),
		"paused":    q.PausedUntil != nil,
		"position":  q.Position,
		"wait_ms":   waitMS(q.Waited),
		"status":    status,
		"method":    request.Method,
		"host":      request.Host,
		"path":      request.Path,
		"client_ip": request.ClientIP,
		"txid":      request.TXID,
	})
}

package serialize

import (
	"errors"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// refuse answers a request that does not get a turn.
func (s *Handler) refuse(w http.ResponseWriter, r *http.Request, v *visit, err error) error {
	refused, ok := errors.AsType[*serializer.Refused](err)
	if !ok {
		refused = &serializer.Refused{Reason: serializer.ReasonStorage, Queue: v.queue, Err: err}
	}
	s.meters.count(string(refused.Reason))
	if refused.Reason == serializer.ReasonGone {
		return v.fail(caddyhttp.Error(statusClientClosed, err))
	}
	now := time.Now()
	if refused.Reason != serializer.ReasonSuperseded { // which is meant to happen
		s.meters.stats.recent.refused(now, refused.Reason)
	}
	s.logRefusal(r, v, refused)
	describeRefusal(r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer), v, refused)
	w.Header().Set("Retry-After", s.retryAfter(v.queue, refused.Position, now))

	status := s.ErrorCode
	if refused.Reason == serializer.ReasonStorage || refused.Reason == serializer.ReasonLost {
		status = http.StatusServiceUnavailable
	}
	s.emitRefusal(r.Context(), v, refused, status)
	v.refused = true
	_ = v.fail(caddyhttp.Error(status, err))
	return s.answerRefusal(w, v)
}

// answerRefusal answers the request of v, which was refused, also when it comes to
// the queue again. Then the handler may be another one, with another
// `error_response`. The status stays the same.
func (s *Handler) answerRefusal(w http.ResponseWriter, v *visit) error {
	if s.ErrorResponse == nil || !v.refused {
		return *v.failure
	}
	w.Header().Set("Content-Type", s.ErrorResponse.ContentType)
	w.WriteHeader(v.failure.StatusCode)
	_, err := w.Write([]byte(s.ErrorResponse.Body))
	return err
}

// statusClientClosed is recorded for a client that has gone, as by nginx and by
// Caddy's reverse proxy.
const statusClientClosed = 499

// describeRefusal sets the placeholders of a refused request.
func describeRefusal(repl *caddy.Replacer, v *visit, refused *serializer.Refused) {
	repl.Set("http.serialize.reason", string(refused.Reason))
	repl.Set("http.serialize.position", refused.Position)
	repl.Set("http.serialize.wait_ms", newWaitMS(v.waited))
}

// logRefusal logs refusals, at most once a second for each reason.
func (s *Handler) logRefusal(r *http.Request, v *visit, refused *serializer.Refused) {
	count, ok := s.refusals.Allow(refused.Reason)
	if !ok {
		return
	}
	level := zap.WarnLevel
	switch refused.Reason {
	case serializer.ReasonStorage:
		level = zap.ErrorLevel
	case serializer.ReasonSuperseded:
		level = zap.InfoLevel
	}
	c := s.logger.Check(level, "refused")
	if c == nil {
		return
	}
	fields := []zap.Field{
		zap.String("queue", v.queue),
		zap.String("reason", string(refused.Reason)),
		zap.Int("position", refused.Position),
		zap.Duration("wait", v.waited),
		zap.Int("count", count),
		zap.Error(refused.Err),
		v.txidField(),
	}
	if hint := selfWaitHint(r, refused); hint != "" {
		fields = append(fields, zap.String("hint", hint))
	}
	c.Write(fields...)
}

// selfWaitHint names the likely cause of a timeout if this server has made the
// request itself.
func selfWaitHint(r *http.Request, refused *serializer.Refused) string {
	if refused.Reason != serializer.ReasonTimeout || !cameFromHere(r) {
		return ""
	}
	return "this server made the request itself: perhaps a request that is inside waits for this one, " +
		"by httpInclude of a template or by a proxy to this server"
}

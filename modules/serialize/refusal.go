package serialize

import (
	"errors"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// statusClientClosed is the status of a request whose client has gone. Only the access log
// shows it.
const statusClientClosed = 499

// refuse answers a request that does not get a turn.
func (v *visit) refuse(w http.ResponseWriter, r *http.Request, err error) error {
	s := v.handler
	refused := refusalOf(v.queue, err)
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
	if isFailure(refused.Reason) {
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

// isFailure reports whether a request was refused because the queue does not work.
func isFailure(reason serializer.Reason) bool {
	return reason == serializer.ReasonStorage || reason == serializer.ReasonLost
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

package once

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderly-http/caddy-orderly/modules/internal/requestbody"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// outcome is what became of a request with a key, as metrics, logs and placeholders have it. A record
// has that of repetitions. As an error, it is why the handler answers a request itself.
type outcome string

const (
	first    outcome = "first"
	repeated outcome = "repeated" // by the answer in the record
	freed    outcome = "freed"    // as if it had never come: the record is removed, and the next one runs
	noKey    outcome = "no_key"
	noScope  outcome = "no_scope"
	badKey   outcome = "bad_key"
	running  outcome = "running"
	unknown  outcome = "unknown"  // the first one runs, or the upstream may have acted on it
	notKept  outcome = "not_kept" // the answer to the first one is not in the record
	mismatch outcome = "mismatch"
	failed   outcome = "storage"
)

// outcomes are all, with the answers that the handler gives itself.
var outcomes = map[outcome]struct {
	status int
	detail string
}{
	first: {}, repeated: {}, freed: {},
	noKey:    {http.StatusBadRequest, "The request needs an idempotency key."},
	noScope:  {http.StatusBadRequest, "It is not known whose idempotency key this is."},
	badKey:   {http.StatusBadRequest, "The request needs exactly one idempotency key, of 1 to 255 visible ASCII characters."},
	running:  {http.StatusConflict, "The first request with this idempotency key is still running, or waits in a pause. Try again later, with the same key."},
	unknown:  {http.StatusConflict, "It is not known what became of the first request with this idempotency key. Find out before you send it with another key."},
	notKept:  {http.StatusConflict, "The first request with this idempotency key was answered, but the answer was not kept."},
	mismatch: {http.StatusUnprocessableEntity, "The idempotency key belongs to another request: method, address or body differ."},
	failed:   {http.StatusServiceUnavailable, "The idempotency key cannot be looked up. The request was not processed. Try again later, with the same key."},
}

// Error implements error.
func (o outcome) Error() string { return string(o) }

// outcomeOf is that of a request that is refused for an error.
func outcomeOf(err error) outcome {
	if o, ok := errors.AsType[outcome](err); ok {
		return o
	}
	if refused, ok := errors.AsType[*serializer.Refused](err); ok && !refused.Reason.IsFailure() && refused.Reason != serializer.ReasonClosed {
		return running
	}
	return failed
}

const (
	reasonField        = "Orderly-Once"
	outcomePlaceholder = "http.once.outcome"
	runsPlaceholder    = "http.once.runs" // is there while a first request runs
)

// answer writes the outcome as problem details (RFC 9457).
func (o outcome) answer(w http.ResponseWriter, r *http.Request) error {
	header, status, detail := w.Header(), outcomes[o].status, outcomes[o].detail
	header.Set("Content-Type", "application/problem+json")
	header.Set(reasonField, string(o))
	switch o {
	case running, failed:
		header.Set("Retry-After", "5") // seconds
	case unknown, notKept:
		header.Set("X-Should-Retry", "false") // which libraries know
		header.Set("Stripe-Should-Retry", "false")
	}
	requestbody.EndConnection(w, r)
	w.WriteHeader(status)
	return json.NewEncoder(w).Encode(map[string]any{
		"title": http.StatusText(status), "status": status, "detail": detail,
		// Clients of Stripe take an answer without it for a success.
		"error": map[string]string{"type": "idempotency_error", "code": string(o), "message": detail},
	})
}

// The metrics are those of all configurations: counters never fall.
var (
	requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "caddy", Subsystem: "once", Name: "requests_total", Help: "Requests with a key, by outcome.",
	}, []string{"outcome"})
	stored = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "caddy", Subsystem: "once", Name: "stored_bytes_total", Help: "Bytes of records that were written to the storage.",
	})
)

// registerMetrics adds the metrics to a configuration's registry, with all outcomes.
func registerMetrics(registry *prometheus.Registry) error {
	for o := range outcomes {
		requests.WithLabelValues(string(o))
	}
	for _, c := range []prometheus.Collector{requests, stored} {
		err := registry.Register(c)
		if _, again := errors.AsType[prometheus.AlreadyRegisteredError](err); err != nil && !again {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	return nil
}

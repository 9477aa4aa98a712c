package once

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/orderly-http/caddy-orderly/modules/internal/requestbody"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// reason is why a request is answered by the handler itself.
type reason struct {
	name   string
	status int
	detail string
}

// The reasons, which are also outcomes of metrics.
var (
	noKey    = &reason{"no_key", http.StatusBadRequest, "The request needs an idempotency key."}
	noScope  = &reason{"no_scope", http.StatusBadRequest, "It is not known whose idempotency key this is."}
	badKey   = &reason{"bad_key", http.StatusBadRequest, "The request needs exactly one idempotency key, of 1 to 255 visible ASCII characters."}
	running  = &reason{"running", http.StatusConflict, "The first request with this idempotency key is still running, or waits in a pause. Try again later, with the same key."}
	unclear  = &reason{"unknown", http.StatusConflict, "It is not known what became of the first request with this idempotency key. Find out before you send it with another key."}
	unkept   = &reason{"not_kept", http.StatusConflict, "The first request with this idempotency key was answered, but the answer was not kept."}
	mismatch = &reason{"mismatch", http.StatusUnprocessableEntity, "The idempotency key belongs to another request: method, address or body differ."}
	failed   = &reason{"storage", http.StatusServiceUnavailable, "The idempotency key cannot be looked up. The request was not processed. Try again later, with the same key."}

	reasons = []*reason{noKey, noScope, badKey, running, unclear, unkept, mismatch, failed}
)

// reasonOf is why a request is refused that did not get its turn, or whose record could not be read.
func reasonOf(err error) *reason {
	_, refused := errors.AsType[*serializer.Refused](err)
	switch reason := serializer.ReasonOf(err); {
	case errors.Is(err, errDamaged):
		return unclear
	case !refused || reason.IsFailure() || reason == serializer.ReasonClosed:
		return failed
	}
	return running
}

// retryAfter is how many seconds a client should wait before it asks again.
const retryAfter = 5

// answer writes the reason as problem details (RFC 9457).
func (why *reason) answer(w http.ResponseWriter, r *http.Request) error {
	header := w.Header()
	header.Set("Content-Type", "application/problem+json")
	header.Set("Orderly-Once", why.name)
	switch why {
	case running, failed:
		header.Set("Retry-After", strconv.Itoa(retryAfter))
	case unclear, unkept:
		for _, field := range []string{"X-Should-Retry", "Stripe-Should-Retry"} { // which libraries know
			header.Set(field, "false")
		}
	}
	requestbody.EndConnection(w, r)
	w.WriteHeader(why.status)
	return json.NewEncoder(w).Encode(map[string]any{
		"title": http.StatusText(why.status), "status": why.status, "detail": why.detail,
		// Clients of Stripe take an answer without it for a success.
		"error": map[string]string{"type": errorTypes[why.status], "code": why.name, "message": why.detail},
	})
}

// errorTypes are those of Stripe's interface.
var errorTypes = map[int]string{
	http.StatusBadRequest: "invalid_request_error", http.StatusConflict: "idempotency_error",
	http.StatusUnprocessableEntity: "idempotency_error", http.StatusServiceUnavailable: "api_error",
}

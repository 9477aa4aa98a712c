package serialize

import (
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// visitsVar is the variable of a request with its visits to queues, the latest
// first.
const visitsVar = "orderly.serialize"

// earlierOrRegister returns the request's earlier visit to the same queue if that
// visit decides about this one. It does so while it holds the turn, since the
// request would wait for itself, and if it never had a turn. Otherwise v is
// registered with the request.
func (v *visit) earlierOrRegister(vars map[string]any) *visit {
	latest, _ := vars[visitsVar].(*visit)
	for earlier := latest; earlier != nil; earlier = earlier.next {
		if earlier.queue == v.queue && earlier.space == v.space && (earlier.failure != nil || earlier.use()) {
			return earlier
		}
	}
	v.next = latest
	vars[visitsVar] = v
	return nil
}

// fail records why the request does not get a turn.
func (v *visit) fail(failure caddyhttp.HandlerError) error {
	v.failure = &failure
	return failure
}

// serveReentrant serves a reentrant request, which comes to the queue of v again.
// While v holds the turn, the request passes, and a use of the turn has been taken
// for it. Otherwise it is answered as before. Error routes must not let a refused
// request in.
func (v *visit) serveReentrant(s *Handler, w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if v.failure != nil {
		return s.answerRefusal(w, v)
	}
	if v.isRunning() {
		defer v.release()
		return next.ServeHTTP(w, r)
	}
	return v.resume(w, r, next, func(error) { v.release() })
}

// latestVisit is the request's latest visit to a queue, or nil.
func latestVisit(r *http.Request) *visit {
	vars, _ := r.Context().Value(caddyhttp.VarsCtxKey).(map[string]any)
	latest, _ := vars[visitsVar].(*visit)
	return latest
}

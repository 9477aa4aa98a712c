package serialize

import (
	"errors"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// errorRoutes precedes the error routes of a server or a subroute, and runs them
// inside the turns that the failed request has kept. Caddy has no hook for the end
// of a request, and every error route passes here.
//
// Provisioning a queue inserts it, so it is in no configuration: see [routes.HoldErrors].
type errorRoutes struct {
	last bool // no other error routes follow if these fail
}

// ServeHTTP implements [caddyhttp.MiddlewareHandler].
func (e *errorRoutes) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	var kept []*visit
	for v := latestVisit(r); v != nil; v = v.next {
		switch {
		case v.takeOver():
			kept = append(kept, v)
		case v.hasGivenUp():
			next = unread
		}
	}
	for _, v := range kept { // the latest first, which is the innermost
		next = e.inside(v, next)
	}
	return next.ServeHTTP(w, r)
}

// unread replaces the error routes of a request whose client hung up just before
// them, or was slow to read a response that had begun. No client reads the answer, or
// takes it for one, and the turn is another request's.
var unread = caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
	w.WriteHeader(failedStatus(r))
	return nil
})

// inside wraps a handler so that it runs in a turn.
func (e *errorRoutes) inside(v *visit, next caddyhttp.Handler) caddyhttp.Handler {
	return caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		return v.resume(w, r, next, func(err error) {
			if err != nil && !e.last {
				v.keep(r.Context())
				return
			}
			v.release()
		})
	})
}

// failedStatus is the status of the error that brought a request to the error
// routes.
func failedStatus(r *http.Request) int {
	err, _ := r.Context().Value(caddyhttp.ErrorCtxKey).(error)
	if failure, ok := errors.AsType[caddyhttp.HandlerError](err); ok && failure.StatusCode != 0 {
		return failure.StatusCode
	}
	return http.StatusInternalServerError
}

func newErrorRoutes(last bool) caddyhttp.MiddlewareHandler { return &errorRoutes{last: last} }

// Interface guards
var _ caddyhttp.MiddlewareHandler = (*errorRoutes)(nil)

package serialize

import (
	"errors"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
)

// errorRoutes precedes the error routes of a server or a subroute, and runs them
// inside the turns that the failed request has kept. Caddy has no hook for the end
// of a request, and every error route passes here.
//
// Provisioning a queue inserts it, so it is in no configuration.
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

// holdErrorRoutes makes the error routes for a handler that is being provisioned run
// inside the turn. It reports whether all error routes of the server do.
func holdErrorRoutes(ctx caddy.Context) bool {
	for _, module := range ctx.Modules() {
		if subroute, ok := module.(*caddyhttp.Subroute); ok && subroute.Errors != nil && areUnfinished(subroute.Routes) {
			subroute.Errors.Routes = holdFirst(subroute.Errors.Routes, newErrorRoute(false))
		}
	}
	server, _ := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	switch {
	case server == nil || server.Errors == nil || len(server.Errors.Routes) == 0:
		return false
	case areUnfinished(server.Routes):
		server.Errors.Routes = holdFirst(server.Errors.Routes, newErrorRoute(true))
		return true
	case isHeld(server.Errors.Routes):
		return true
	case areUnfinished(server.Errors.Routes):
		return false // the handler is in one of them, and its errors go to no others
	}
	return holdSubroutes(ctx, server)
}

// holdSubroutes does the same for a handler in a named route. Named routes are
// provisioned after the error routes have been compiled, except for the subroutes in
// these.
func holdSubroutes(ctx caddy.Context, server *caddyhttp.Server) bool {
	all := true
	for _, route := range server.Errors.Routes {
		if len(route.Handlers) == 0 {
			continue
		}
		subroute, ok := route.Handlers[0].(*caddyhttp.Subroute)
		first := newErrorRoute(true)
		if !ok || first.Provision(ctx, nil) != nil {
			all = false
			continue
		}
		subroute.Routes = holdFirst(subroute.Routes, first)
	}
	if !all {
		ctx.Logger().Warn("error routes of this server end their turn when the client hangs up; "+
			"put a serialize outside of named routes, or the error routes into a subroute", zap.String("server", server.Name()))
	}
	return all
}

// areUnfinished reports whether routes are being provisioned, or will be.
func areUnfinished(routes caddyhttp.RouteList) bool {
	_, unfinished := unfinishedStep(nil, routes)
	return unfinished
}

func newErrorRoute(last bool) caddyhttp.Route {
	return caddyhttp.Route{Handlers: []caddyhttp.MiddlewareHandler{&errorRoutes{last: last}}}
}

// holdFirst puts a route before the others, unless it is there already.
func holdFirst(routes caddyhttp.RouteList, first caddyhttp.Route) caddyhttp.RouteList {
	if isHeld(routes) {
		return routes
	}
	return append(caddyhttp.RouteList{first}, routes...)
}

func isHeld(routes caddyhttp.RouteList) bool {
	if len(routes) == 0 || len(routes[0].Handlers) == 0 {
		return false
	}
	_, held := routes[0].Handlers[0].(*errorRoutes)
	return held
}

// Interface guards
var _ caddyhttp.MiddlewareHandler = (*errorRoutes)(nil)

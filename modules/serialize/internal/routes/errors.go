package routes

import (
	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
)

// heldErrors is the handler of a route that precedes all error routes. No configuration
// has it.
type heldErrors struct{ caddyhttp.MiddlewareHandler }

// HoldErrors puts a handler before the error routes of a handler that is being
// provisioned. last says that no other error routes follow. It reports whether all error
// routes of the server have it.
func HoldErrors(ctx caddy.Context, before func(last bool) caddyhttp.MiddlewareHandler) bool {
	newRoute := func(last bool) caddyhttp.Route {
		return caddyhttp.Route{Handlers: []caddyhttp.MiddlewareHandler{&heldErrors{before(last)}}}
	}
	for _, module := range ctx.Modules() {
		if subroute, ok := module.(*caddyhttp.Subroute); ok && subroute.Errors != nil && areUnfinished(subroute.Routes) {
			subroute.Errors.Routes = holdFirst(subroute.Errors.Routes, newRoute(false))
		}
	}
	server, _ := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	switch {
	case server == nil || server.Errors == nil || len(server.Errors.Routes) == 0:
		return false
	case areUnfinished(server.Routes):
		server.Errors.Routes = holdFirst(server.Errors.Routes, newRoute(true))
		return true
	case isHeld(server.Errors.Routes):
		return true
	case areUnfinished(server.Errors.Routes):
		return false // the handler is in one of them, and its errors go to no others
	}
	return holdSubroutes(ctx, server, newRoute)
}

// holdSubroutes does the same for a handler in a named route. Named routes are
// provisioned after the error routes have been compiled, except for the subroutes in
// these.
func holdSubroutes(ctx caddy.Context, server *caddyhttp.Server, newRoute func(last bool) caddyhttp.Route) bool {
	all := true
	for _, route := range server.Errors.Routes {
		if len(route.Handlers) == 0 {
			continue
		}
		subroute, ok := route.Handlers[0].(*caddyhttp.Subroute)
		first := newRoute(true)
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
	_, held := routes[0].Handlers[0].(*heldErrors)
	return held
}

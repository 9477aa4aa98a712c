package uniqueids

import (
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// comesToTracing reports whether the request comes to Caddy's tracing, which adopts the trace that
// it finds in the request's header. It follows the routes as Caddy does, as far as their matchers
// say now. It does not follow named routes.
func (ids *requestIDs) comesToTracing(r *http.Request) bool {
	server, ok := ids.ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	return ok && slices.ContainsFunc(server.Routes, hasTracing) && leadToTracing(server.Routes, r)
}

func leadToTracing(routes caddyhttp.RouteList, r *http.Request) bool {
	var taken []string // groups, of which only one route runs
	for _, route := range routes {
		if slices.Contains(taken, route.Group) {
			continue
		}
		if matches, err := route.MatcherSets.AnyMatchWithError(r); !matches || err != nil {
			continue
		}
		for _, handler := range route.Handlers {
			if isTracing(handler) || leadToTracing(routesOf(handler), r) {
				return true
			}
		}
		if route.Terminal {
			return false
		}
		if route.Group != "" {
			taken = append(taken, route.Group)
		}
	}
	return false
}

// hasTracing reports whether a route has the handler, for whatever requests.
func hasTracing(route caddyhttp.Route) bool {
	return slices.ContainsFunc(route.Handlers, func(handler caddyhttp.MiddlewareHandler) bool {
		return isTracing(handler) || slices.ContainsFunc(routesOf(handler), hasTracing)
	})
}

func isTracing(handler caddyhttp.MiddlewareHandler) bool {
	module, ok := handler.(caddy.Module)
	return ok && module.CaddyModule().ID == "http.handlers.tracing"
}

func routesOf(handler caddyhttp.MiddlewareHandler) caddyhttp.RouteList {
	if subroute, ok := handler.(*caddyhttp.Subroute); ok {
		return subroute.Routes
	}
	return nil
}

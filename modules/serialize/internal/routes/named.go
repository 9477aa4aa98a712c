package routes

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Of the routes of a group, Caddy runs one for each request. It numbers the groups of a
// Caddyfile's named routes separately from those of its sites (version 2.11), so two
// groups can have one name. A request that has used one of them then bypasses the other,
// and the queues in it. serialize gives its own groups names that no other group has.
// For a queue inside another group, such as handle blocks, all it can do is refuse.

// CheckNamed returns an error if requests can bypass a handler that is being
// provisioned in a named route.
func CheckNamed(ctx caddy.Context) error {
	server, _ := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if server == nil || areUnfinished(server.Routes) || server.Errors != nil && areUnfinished(server.Errors.Routes) {
		return nil // named routes come last
	}
	around := groupsAround(ctx)
	for _, way := range waysThrough(server) {
		i := slices.IndexFunc(around, func(group string) bool { return slices.Contains(way.groups, group) })
		if way.invokes && i >= 0 {
			return fmt.Errorf("the queue is in %q, a group of routes (such as handle blocks) in a named route; "+
				"a group of a site that invokes named routes has the same name, so Caddy can lead requests past the queue: "+
				"put serialize before the handle blocks, or these into the site", around[i])
		}
	}
	return nil
}

// groupsAround are the groups of the routes around a handler that is being provisioned.
func groupsAround(ctx caddy.Context) (groups []string) {
	for _, module := range ctx.Modules() {
		if subroute, ok := module.(*caddyhttp.Subroute); ok {
			if at, ok := stepOf(subroute, subroute.Routes, subroute.Errors); ok && at.group != "" {
				groups = append(groups, at.group)
			}
		}
	}
	return groups
}

// way is what a request may meet on its way through a list of routes.
type way struct {
	groups  []string
	invokes bool // a named route
}

// waysThrough are the ways through a server's routes and error routes. Error routes come
// after any of the routes, whose groups stay used.
func waysThrough(server *caddyhttp.Server) []way {
	all := ways(server.Routes, way{})
	if server.Errors == nil {
		return all
	}
	var failed way
	for _, w := range all {
		failed.groups = append(failed.groups, w.groups...)
	}
	return append(all, ways(server.Errors.Routes, failed)...)
}

// ways are those through routes after what has been met before. A request passes at most
// one route that is terminal, as those of sites with a host are.
func ways(routes caddyhttp.RouteList, before way) []way {
	for _, route := range routes {
		if !route.Terminal {
			before.addRoute(route)
		}
	}
	all := []way{before}
	for _, route := range routes {
		if route.Terminal {
			w := way{slices.Clone(before.groups), before.invokes}
			w.addRoute(route)
			all = append(all, w)
		}
	}
	return all
}

func (w *way) addRoutes(routes caddyhttp.RouteList) {
	for _, route := range routes {
		w.addRoute(route)
	}
}

func (w *way) addRoute(route caddyhttp.Route) {
	if route.Group != "" {
		w.groups = append(w.groups, route.Group)
	}
	for _, handler := range route.Handlers {
		switch handler := handler.(type) {
		case *caddyhttp.Invoke:
			w.invokes = true
		case *caddyhttp.Subroute:
			w.addRoutes(handler.Routes)
			if handler.Errors != nil {
				w.addRoutes(handler.Errors.Routes)
			}
		default:
			for _, response := range responseHandlers(handler) {
				w.addRoutes(response.Routes)
			}
		}
	}
}

// responseHandlers are those of a handler such as reverse_proxy or intercept, which all
// have them in a field of this name.
func responseHandlers(handler caddyhttp.MiddlewareHandler) []caddyhttp.ResponseHandler {
	settings := reflect.Indirect(reflect.ValueOf(handler))
	if settings.Kind() != reflect.Struct {
		return nil
	}
	field := settings.FieldByName("HandleResponse")
	if !field.IsValid() || !field.CanInterface() {
		return nil
	}
	responses, _ := field.Interface().([]caddyhttp.ResponseHandler)
	return responses
}

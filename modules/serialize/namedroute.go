package serialize

import (
	"fmt"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Of the routes of a group, Caddy runs one for each request. It numbers the groups of
// a Caddyfile's named routes apart from those of its sites (version 2.11), so two groups
// can have one name. A request that has used the one is then led past the other, and
// past the queues in it. serialize gives its own groups names that no other group has.
// For a queue inside another group, such as handle blocks, all it can do is refuse.

// checkNamedRoute returns an error if requests can be led past a handler that is being
// provisioned in a named route.
func checkNamedRoute(ctx caddy.Context) error {
	server, _ := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if server == nil || areUnfinished(server.Routes) || server.Errors != nil && areUnfinished(server.Errors.Routes) {
		return nil // named routes come last
	}
	around := groupsAround(ctx)
	lists := []caddyhttp.RouteList{server.Routes}
	if server.Errors != nil {
		lists = append(lists, server.Errors.Routes)
	}
	for _, routes := range lists {
		for _, way := range ways(routes) {
			if !way.invokes {
				continue
			}
			if i := slices.IndexFunc(around, func(group string) bool { return slices.Contains(way.groups, group) }); i >= 0 {
				return fmt.Errorf("the queue is in %q, a group of routes (such as handle blocks) in a named route; "+
					"a group of a site that invokes named routes has the same name, so Caddy can lead requests past the queue: "+
					"put serialize before the handle blocks, or these into the site", around[i])
			}
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

// ways are those through the routes of a server. A request passes at most one route that
// is terminal, as those of sites with a host are.
func ways(routes caddyhttp.RouteList) (all []way) {
	var always way
	for _, route := range routes {
		if !route.Terminal {
			always.add(route)
		}
	}
	all = append(all, always)
	for _, route := range routes {
		if route.Terminal {
			w := way{slices.Clone(always.groups), always.invokes}
			w.add(route)
			all = append(all, w)
		}
	}
	return all
}

func (w *way) add(route caddyhttp.Route) {
	if route.Group != "" {
		w.groups = append(w.groups, route.Group)
	}
	for _, handler := range route.Handlers {
		switch handler := handler.(type) {
		case *caddyhttp.Invoke:
			w.invokes = true
		case *caddyhttp.Subroute:
			for _, inner := range handler.Routes {
				w.add(inner)
			}
			if handler.Errors != nil {
				for _, inner := range handler.Errors.Routes {
					w.add(inner)
				}
			}
		}
	}
}

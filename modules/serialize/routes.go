package serialize

import (
	"context"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// routeGroup is the group of the route whose handler is being provisioned, or "".
func routeGroup(ctx caddy.Context) string {
	lineage := ctx.Modules() // the last one is the handler
	if len(lineage) < 2 {
		return ""
	}
	if parent, ok := lineage[len(lineage)-2].(*caddyhttp.Subroute); ok {
		if group, ok := groupOfUnfinished(parent.Routes); ok || parent.Errors == nil {
			return group
		}
		group, _ := groupOfUnfinished(parent.Errors.Routes)
		return group
	}
	server, _ := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if server == nil {
		return ""
	}
	group, _ := groupOfUnfinished(server.Routes)
	return group
}

// groupOfUnfinished is the group of the first route whose handlers are not all
// provisioned. Caddy provisions routes in order, and drops the JSON of a finished
// route.
func groupOfUnfinished(routes caddyhttp.RouteList) (group string, found bool) {
	for _, route := range routes {
		if route.HandlersRaw != nil {
			return route.Group, true
		}
	}
	return "", false
}

// groupsKey is the key under which Caddy stores the groups that have matched in a
// request.
const groupsKey = caddy.CtxKey("route_group")

// reopenGroup lets the routes of a group match again. Otherwise a request that error
// routes bring to a named route again would bypass its queue.
func reopenGroup(ctx context.Context, group string) {
	if group == "" {
		return
	}
	if groups, ok := ctx.Value(groupsKey).(map[string]struct{}); ok {
		delete(groups, group)
	}
}

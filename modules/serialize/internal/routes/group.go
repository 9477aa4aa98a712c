package routes

import (
	"context"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Group is the group of the route whose handler is being provisioned, or "".
func Group(ctx caddy.Context) string {
	lineage := ctx.Modules() // the last one is the handler
	if len(lineage) < 2 {
		return ""
	}
	if parent, ok := lineage[len(lineage)-2].(*caddyhttp.Subroute); ok {
		at, _ := stepOf(parent, parent.Routes, parent.Errors)
		return at.group
	}
	if server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server); ok {
		at, _ := unfinishedStep(server, server.Routes)
		return at.group
	}
	return ""
}

// groupsKey is the key under which Caddy stores the groups that have matched in a
// request.
const groupsKey = caddy.CtxKey("route_group")

// Reopen lets the routes of a group match again. Otherwise a request that error
// routes bring to a named route again would bypass its queue.
func Reopen(ctx context.Context, group string) {
	if group == "" {
		return
	}
	if groups, ok := ctx.Value(groupsKey).(map[string]struct{}); ok {
		delete(groups, group)
	}
}

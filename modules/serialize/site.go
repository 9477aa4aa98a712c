package serialize

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// siteOf names the site whose handlers are being provisioned, for people: its hosts, and where
// its server listens. Caddy fills in the routes of a server one after the other, so it is the
// first one without handlers.
func siteOf(ctx caddy.Context) string {
	server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if !ok {
		return ""
	}
	name := strings.Join(server.Listen, " ")
	current := slices.IndexFunc(server.Routes, func(r caddyhttp.Route) bool { return r.Handlers == nil && r.HandlersRaw != nil })
	if current < 0 {
		return name
	}
	for _, hosts := range hostMatchers(server.Routes[current]) {
		name = fmt.Sprintf("%s at %s", strings.Join(*hosts, " "), name)
	}
	return name
}

// hostMatchers are those of a route. The Caddyfile makes one for each site.
func hostMatchers(route caddyhttp.Route) (found []*caddyhttp.MatchHost) {
	for _, matcher := range slices.Concat(route.MatcherSets...) {
		if hosts, ok := matcher.(*caddyhttp.MatchHost); ok {
			found = append(found, hosts)
		}
	}
	return found
}

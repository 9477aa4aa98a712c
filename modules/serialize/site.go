package serialize

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/modules/internal/engines"
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

// warnOfRoot warns if the lock files are below the site's root, as the first request knows it:
// file_server may serve them, and their names have the addresses of clients.
func (s *Handler) warnOfRoot(vars map[string]any) {
	root, _ := vars["root"].(string)
	if engines.NameOf(s.module) != "file" || root == "" {
		return
	}
	if relative, err := filepath.Rel(engines.RealPath(root), engines.RealPath(s.Path)); err == nil && filepath.IsLocal(relative) {
		s.report.Logger.Warn("the lock directory is below a root whose files file_server may serve; choose another path",
			zap.String("path", s.Path), zap.String("root", root))
	}
}

package serialize

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/modules/internal/engines"
)

// site is what a load can see around a line.
type site struct {
	name     string          // for people: its hosts, and where its server listens
	handlers json.RawMessage // all of the site, as configured
}

// siteOf is the site whose handlers are being provisioned. Caddy fills in the routes of a
// server one after the other, so it is the first one without handlers.
func siteOf(ctx caddy.Context) (s site) {
	server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if !ok {
		return s
	}
	s.name = strings.Join(server.Listen, " ")
	current := slices.IndexFunc(server.Routes, func(r caddyhttp.Route) bool { return r.Handlers == nil && r.HandlersRaw != nil })
	if current < 0 {
		return s
	}
	s.handlers, _ = json.Marshal(server.Routes[current].HandlersRaw)
	for _, hosts := range hostMatchers(server.Routes[current]) {
		s.name = fmt.Sprintf("%s at %s", strings.Join(*hosts, " "), s.name)
	}
	return s
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

// servedRoots are the roots of a site with a file_server, as far as they are known now.
func (s site) servedRoots() (roots []string) {
	if !bytes.Contains(s.handlers, []byte(`"file_server"`)) {
		return nil
	}
	var all any
	_ = json.Unmarshal(s.handlers, &all)
	var walk func(any)
	walk = func(value any) {
		switch value := value.(type) {
		case []any:
			for _, v := range value {
				walk(v)
			}
		case map[string]any:
			root, _ := value["root"].(string)
			if handler := value["handler"]; root != "" && (handler == "vars" || handler == "file_server") {
				roots = append(roots, caddy.NewReplacer().ReplaceKnown(root, ""))
			}
			for _, v := range value {
				walk(v)
			}
		}
	}
	walk(all)
	return roots
}

// warn logs what may be a mistake in the settings of a line.
func (s *Handler) warn(ctx caddy.Context) {
	log := ctx.Logger()
	if joined := s.prefix.Joined(); joined != "" {
		log.Warn("two placeholders with no text in between: \"ab\" and \"c\" are the queue of \"a\" and \"bc\"; put a text such as _ in between",
			zap.String("prefix", s.Prefix), zap.String("placeholders", joined))
	}
	if s.KeepAlive != nil && *s.Timeout > 0 && *s.KeepAlive.Interval >= *s.Timeout {
		log.Warn("no client of a line with keepalive gets a comment: the timeout comes before the first interval has passed; "+
			"set keepalive to less than timeout", zap.String("prefix", s.Prefix),
			zap.Duration("keepalive", time.Duration(*s.KeepAlive.Interval)), zap.Duration("timeout", time.Duration(*s.Timeout)))
	}
	for _, other := range registered.handlersWhere(s.differsFrom) {
		log.Warn("two lines of one queue differ in concurrency, hold_at_least or shared_methods; give both the same settings, or one of them another prefix",
			zap.String("path", s.Path), zap.String("prefix", s.Prefix), zap.String("site", s.site.name), zap.String("settings", s.ruleText),
			zap.String("other_site", other.site.name), zap.String("other_settings", other.ruleText))
		break // one such line says enough
	}
	if _, files := s.module.(engines.File); files || engines.NameOf(s.module) == "file" {
		for _, root := range s.site.servedRoots() {
			if below(engines.RealPath(root), engines.RealPath(s.Path)) {
				log.Warn("the lock directory is below a root whose files file_server may serve; choose another path",
					zap.String("path", s.Path), zap.String("root", root))
				break
			}
		}
	}
}

// differsFrom reports whether another line of the configuration has the queue by other rules.
func (s *Handler) differsFrom(other *Handler) bool {
	return s.isBeside(other) && !s.DryRun && !other.DryRun && other.ruleText != s.ruleText
}

// sharesQueue reports whether another line, perhaps of another configuration, has the queue.
func (s *Handler) sharesQueue(other *Handler) bool {
	return other.engine.Space == s.engine.Space && other.Prefix == s.Prefix
}

// followers are the lines of other configurations that have the queue of one that ends.
func (s *Handler) followers() []*Handler {
	return registered.handlersWhere(func(other *Handler) bool {
		return other.ctx.Done() != s.ctx.Done() && s.sharesQueue(other) && !other.DryRun
	})
}

func below(root, path string) bool {
	relative, err := filepath.Rel(root, path)
	return err == nil && relative != ".." && !strings.HasPrefix(relative, "../")
}

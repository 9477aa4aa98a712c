package serialize

import (
	"fmt"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/prometheus/client_golang/prometheus"
)

// configuration is what the handlers of one configuration know of each other while
// they are provisioned. Handlers know their configuration by its metrics registry,
// of which each configuration has one.
type configuration struct {
	number   uint64
	handlers int // that use it
	declared declarations[queueIdentity]
	rules    map[queueIdentity]*queueRules
	passages []passage
}

// queueIdentity tells queues apart within a configuration. Prefixes with placeholders
// count as they are written.
type queueIdentity struct{ space, prefix string }

var configurations = struct {
	sync.Mutex
	last       uint64 // number
	byRegistry map[*prometheus.Registry]*configuration
}{byRegistry: make(map[*prometheus.Registry]*configuration)}

// enterConfiguration adds a handler to its configuration until leave is called. check
// compares it with the others.
func enterConfiguration(ctx caddy.Context, check func(*configuration) error) (leave func(), err error) {
	registry := ctx.GetMetricsRegistry()
	configurations.Lock()
	defer configurations.Unlock()
	c := configurations.byRegistry[registry]
	if c == nil {
		configurations.last++
		c = &configuration{
			number: configurations.last, declared: make(declarations[queueIdentity]), rules: make(map[queueIdentity]*queueRules),
		}
		configurations.byRegistry[registry] = c
	}
	c.handlers++
	return func() { c.leave(registry) }, check(c)
}

// joinConfiguration compares the handler with the others of its configuration.
func (s *Handler) joinConfiguration(ctx caddy.Context) (err error) {
	queue, at := queueIdentity{spaceOf(s.module, resolveDirectory(s.Path).path), s.Prefix}, placeOf(ctx)
	s.leaveConfig, err = enterConfiguration(ctx, func(c *configuration) error {
		if err := c.declared.agree(queue, queue.prefix, declaration{s.DryRun, at.String()}); err != nil {
			return err
		}
		s.rules = c.noteRules(queue, s.rule, s.shared)
		c.pass(passage{queue: queue, at: at}, s.logger)
		return nil
	})
	return err
}

func (c *configuration) leave(registry *prometheus.Registry) {
	configurations.Lock()
	defer configurations.Unlock()
	if c.handlers--; c.handlers == 0 {
		delete(configurations.byRegistry, registry)
	}
}

// place is where a handler stands in a configuration: a step for each list of routes
// around it, the outermost first.
type place struct {
	server string
	steps  []step
}

// step is a route of a list.
type step struct {
	list     any // the owner of the list, with which it can be compared
	errors   bool
	index    int
	group    string
	always   bool // it matches every request
	terminal bool
}

// placeOf is the place of a handler that is being provisioned. It has no steps in a
// named route, which may be invoked from anywhere.
func placeOf(ctx caddy.Context) (at place) {
	if server, _ := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server); server != nil {
		at.server = server.Name()
		found, ok := stepOf(server, server.Routes, server.Errors)
		if !ok {
			return at
		}
		at.steps = append(at.steps, found)
	}
	for _, module := range ctx.Modules() {
		if subroute, ok := module.(*caddyhttp.Subroute); ok {
			if found, ok := stepOf(subroute, subroute.Routes, subroute.Errors); ok {
				at.steps = append(at.steps, found)
			}
		}
	}
	return at
}

// stepOf finds the route whose handlers are being provisioned.
func stepOf(owner any, routes caddyhttp.RouteList, failed *caddyhttp.HTTPErrorConfig) (s step, ok bool) {
	if s, ok = unfinishedStep(owner, routes); ok || failed == nil {
		return s, ok
	}
	s, ok = unfinishedStep(owner, failed.Routes)
	s.errors = true
	if isHeld(failed.Routes) {
		s.index-- // the first one is in no configuration
	}
	return s, ok
}

func unfinishedStep(owner any, routes caddyhttp.RouteList) (step, bool) {
	for i, route := range routes {
		if route.HandlersRaw != nil {
			return step{list: owner, index: i, group: route.Group, always: len(route.MatcherSets) == 0 && len(route.MatcherSetsRaw) == 0, terminal: route.Terminal}, true
		}
	}
	return step{}, false
}

// String is the path of the place in the configuration's JSON, without the numbers of
// handlers.
func (p place) String() string {
	var text strings.Builder
	text.WriteString("apps/http/servers/" + p.server)
	for i, s := range p.steps {
		if i > 0 {
			text.WriteString("/handle/...")
		}
		if s.errors {
			text.WriteString("/errors")
		}
		fmt.Fprintf(&text, "/routes/%d", s.index)
	}
	return text.String()
}

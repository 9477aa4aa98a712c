// Package routes knows where a handler stands among the routes of a configuration, while
// Caddy provisions it.
package routes

import (
	"fmt"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Place is where a handler stands in a configuration: a step for each list of routes
// around it, the outermost first.
type Place struct {
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

// PlaceOf is the place of a handler that is being provisioned. It has no steps in a
// named route, which may be invoked from anywhere.
func PlaceOf(ctx caddy.Context) (at Place) {
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

// unfinishedStep finds the first route whose handlers are not all provisioned. Caddy
// provisions routes in order, and drops the JSON of a finished route.
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
func (p Place) String() string {
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

// Precedes reports whether requests can come to this handler, and from there to a
// later one of the configuration. Two routes with matchers count only if they are
// the same route: their matchers may exclude each other.
func (p Place) Precedes(later Place) bool {
	if p.server != later.server || len(p.steps) == 0 || len(later.steps) == 0 {
		return false
	}
	for i := range min(len(p.steps), len(later.steps)) {
		a, b := p.steps[i], later.steps[i]
		switch {
		case a.list != b.list:
			return i > 0 // they are in the same route, one after the other
		case a != b:
			return a.leadsTo(b)
		}
	}
	return true // they are in the same route, perhaps one of them deeper
}

// leadsTo reports whether requests go on from a route to a later one of its list.
func (s step) leadsTo(later step) bool {
	exclusive := s.group != "" && s.group == later.group
	return s.errors == later.errors && !s.terminal && !exclusive && (s.always || later.always)
}

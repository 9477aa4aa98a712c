// Package lineorder finds out which of the serialize lines of a Caddyfile block applies
// to a request.
package lineorder

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Of all serialize lines of one block that match a request, only the most
// specific applies. The routes of a block share a group, of which Caddy takes
// the first route that matches; so they must stand in the right order:
//
//  1. lines whose matcher has any condition but paths, as written;
//  2. paths, the longest first, each path of a matcher with several for itself;
//  3. the line without a matcher.
//
// Caddy's own sorting knows only lines with at most one path. Each line
// therefore returns a list of routes, which Caddy leaves in its order. Every
// further line fills the lists of its block anew.
//
// In a route block the order is the one written, as for all directives there.

// serializeBlock is the serialize lines of one block.
type serializeBlock struct {
	id      blockID
	group   string
	written bool // the order is the one written: a route block
	lines   []*serializeLine
}

// serializeLine is one serialize directive of a block.
type serializeLine struct {
	at      Position
	number  int  // in the block, from 0
	again   bool // has no matcher, as one before it
	matcher caddy.ModuleMap
	paths   []string // the matcher's, if it has nothing else
	route   caddyhttp.Route
	slots   []caddyhttp.Route // what Caddy got for the line; filled by arrange
}

// Add makes a line part of its block, and returns its routes.
func Add(h httpcaddyfile.Helper, at Position, matcher caddy.ModuleMap, route caddyhttp.Route) ([]caddyhttp.Route, error) {
	block := serializeBlockOf(h)
	paths := plainPaths(matcher)
	route.Group = block.group
	line := &serializeLine{
		at:      at,
		number:  len(block.lines),
		again:   matcher == nil && slices.ContainsFunc(block.lines, func(l *serializeLine) bool { return l.matcher == nil }),
		matcher: matcher,
		paths:   paths,
		route:   route,
		slots:   make([]caddyhttp.Route, max(1, len(paths))),
	}
	block.lines = append(block.lines, line)
	order := block.order()
	if dead, by := block.unreachable(h, order); dead != nil && block.id.site != 0 {
		return nil, h.Errf("serialize: the line at %s can never apply: the one at %s comes before it and matches all its requests; "+
			"only the most specific line of a block applies to a request (in a route block, the first one)", dead.at, by.at)
	}
	block.arrange(order)
	return line.slots, nil
}

// serializeBlockOf returns the block that a line stands in.
func serializeBlockOf(h httpcaddyfile.Helper) *serializeBlock {
	const key = "orderly.serialize"
	id := blockOf(h)
	block, ok := h.BlockState[key].(*serializeBlock)
	if !ok || block.id != id {
		block = &serializeBlock{id: id, group: nextGroup(h), written: inRouteBlock()}
		h.BlockState[key] = block
	}
	return block
}

// plainPaths are the paths of a matcher that has no other condition.
func plainPaths(matcher caddy.ModuleMap) (paths []string) {
	raw, ok := matcher["path"]
	if !ok || len(matcher) > 1 {
		return nil
	}
	if err := json.Unmarshal(raw, &paths); err != nil || slices.Contains(paths, "") {
		return nil
	}
	return paths
}

// candidate is what a request is compared with: a line, by one of its paths.
type candidate struct {
	line *serializeLine
	path string // "" where the line is not one of plain paths
}

// order lists the candidates in the order in which requests meet them.
func (b *serializeBlock) order() (order []candidate) {
	for _, line := range b.lines {
		for _, path := range line.paths {
			order = append(order, candidate{line, path})
		}
		if len(line.paths) == 0 {
			order = append(order, candidate{line: line})
		}
	}
	if !b.written {
		slices.SortStableFunc(order, moreSpecific)
	}
	return order
}

func moreSpecific(a, b candidate) int {
	if by := a.rank() - b.rank(); by != 0 || a.path == "" {
		return by
	}
	// As Caddy compares paths.
	first, second := strings.TrimSuffix(a.path, "*"), strings.TrimSuffix(b.path, "*")
	switch {
	case first == second:
		return len(a.path) - len(b.path)
	case len(first) == len(second):
		return strings.Compare(first, second)
	}
	return len(second) - len(first)
}

func (c candidate) rank() int {
	switch {
	case c.path != "":
		return 1
	case c.line.matcher != nil:
		return 0
	}
	return 2
}

// arrange fills the routes that Caddy got for the lines of the block.
func (b *serializeBlock) arrange(order []candidate) {
	slots := b.slots()
	for len(order) > 0 {
		line, n := order[0].line, 1
		for n < len(order) && order[n].line == line {
			n++
		}
		*slots[0] = line.routeFor(order[:n])
		for _, rest := range slots[1:n] {
			// Caddy joins neighbours with the same matcher, so a route without
			// a handler leaves no trace.
			*rest = *slots[0]
			rest.HandlersRaw = nil
		}
		slots, order = slots[n:], order[n:]
	}
}

// slots are the routes that Caddy got for the block, in Caddy's order.
func (b *serializeBlock) slots() (slots []*caddyhttp.Route) {
	for _, line := range b.lines {
		for i := range line.slots {
			slots = append(slots, &line.slots[i])
		}
	}
	return slots
}

// routeFor is the line's route for some of its paths.
func (l *serializeLine) routeFor(candidates []candidate) caddyhttp.Route {
	route, matcher := l.route, l.matcher
	switch {
	case matcher == nil && !l.again:
		return route
	case matcher == nil:
		matcher = caddy.ModuleMap{"path": json.RawMessage(`["*"]`)}
	case len(candidates) < len(l.slots):
		paths := make(caddyhttp.MatchPath, len(candidates))
		for i, c := range candidates {
			paths[i] = c.path
		}
		matcher = caddy.ModuleMap{"path": caddyconfig.JSON(paths, nil)}
	}
	route.MatcherSetsRaw = caddyhttp.RawMatcherSets{l.own(matcher)}
	return route
}

// own is a matcher written so that it equals no other line's: Caddy would make
// one route of two lines, and both would apply. The spaces are gone once the
// configuration is written out.
func (l *serializeLine) own(matcher caddy.ModuleMap) caddy.ModuleMap {
	own := make(caddy.ModuleMap, len(matcher))
	for name, raw := range matcher {
		own[name] = slices.Concat(raw, bytes.Repeat([]byte(" "), l.number))
	}
	return own
}

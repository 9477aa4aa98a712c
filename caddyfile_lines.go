package orderly

import (
	"encoding/json"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
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
// therefore returns a list of routes, which Caddy leaves in its order, and the
// lists of a block are filled anew with every further line.
//
// In a route block the order is the one written, as for all directives there.

// serializeBlock is the serialize lines of one block.
type serializeBlock struct {
	id      blockID
	group   string
	written bool // the order is the one written: a route block
	lines   []*serializeLine
}

// serializeLine is one of them.
type serializeLine struct {
	at      string // file and line
	matcher caddy.ModuleMap
	paths   []string // the matcher's, if it has nothing else
	route   caddyhttp.Route
	slots   []caddyhttp.Route // what Caddy got for the line; filled by arrange
}

// addSerializeLine makes a line part of its block, and returns its routes.
func addSerializeLine(h httpcaddyfile.Helper, at string, matcher caddy.ModuleMap, route caddyhttp.Route) ([]caddyhttp.Route, error) {
	block := serializeBlockOf(h)
	paths := plainPaths(matcher)
	route.Group = block.group
	line := &serializeLine{
		at:      at,
		matcher: matcher,
		paths:   paths,
		route:   route,
		slots:   make([]caddyhttp.Route, max(1, len(paths))),
	}
	block.lines = append(block.lines, line)
	order := block.order()
	if dead, by := unreachable(order); dead != nil && block.id.site != 0 {
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

// inRouteBlock reports whether the directive that is being parsed stands in a
// route block. Caddy does not tell a directive what it stands in, except by who
// has called it.
func inRouteBlock() bool {
	const caller = "httpcaddyfile.parseSegmentAsConfig"
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		frame, more := frames.Next()
		if strings.HasSuffix(frame.Function, caller) {
			frame, _ = frames.Next()
			return strings.HasSuffix(frame.Function, "httpcaddyfile.parseRoute")
		}
		if !more {
			return false
		}
	}
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

// unreachable returns a line that no request can reach, and the line that takes
// its requests.
func unreachable(order []candidate) (dead, by *serializeLine) {
	taken := make(map[*serializeLine]int) // how many candidates of a line are out of reach
	for i, c := range order {
		j := slices.IndexFunc(order[:i], func(o candidate) bool { return o.line != c.line && o.covers(c) })
		if j < 0 {
			continue
		}
		if taken[c.line]++; taken[c.line] == len(c.line.slots) {
			return c.line, order[j].line
		}
	}
	return nil, nil
}

// covers reports whether c surely matches every request that o matches.
func (c candidate) covers(o candidate) bool {
	switch {
	case c.line.matcher == nil || c.path == "*" || c.path == "/*":
		return true
	case c.path == "" || o.path == "":
		return c.path == o.path && reflect.DeepEqual(c.line.matcher, o.line.matcher)
	}
	return pathCovers(strings.ToLower(c.path), strings.ToLower(o.path))
}

// pathCovers reports whether a path pattern matches all that another one does,
// as far as that can be seen: not with placeholders, escapes or wildcards in the
// middle.
func pathCovers(pattern, other string) bool {
	if pattern == other {
		return true
	}
	if strings.ContainsAny(pattern+other, "{%") || strings.Contains(strings.Trim(pattern, "*"), "*") || strings.Contains(strings.Trim(other, "*"), "*") {
		return false
	}
	text, literal := strings.Trim(pattern, "*"), strings.Trim(other, "*")
	front, back := strings.HasPrefix(pattern, "*"), strings.HasSuffix(pattern, "*")
	switch {
	case front && back:
		return strings.Contains(literal, text)
	case back:
		return !strings.HasPrefix(other, "*") && strings.HasPrefix(literal, text)
	case front:
		return !strings.HasSuffix(other, "*") && strings.HasSuffix(literal, text)
	}
	return false
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
			// Caddy joins neighbours that match alike, so a route without a
			// handler leaves no trace.
			*rest = *slots[0]
			rest.HandlersRaw = nil
		}
		slots, order = slots[n:], order[n:]
	}
}

// slots are the places for the routes of the block, in Caddy's order.
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
	route := l.route
	if len(candidates) == len(l.slots) {
		return route
	}
	paths := make(caddyhttp.MatchPath, len(candidates))
	for i, c := range candidates {
		paths[i] = c.path
	}
	route.MatcherSetsRaw = caddyhttp.RawMatcherSets{{"path": caddyconfig.JSON(paths, nil)}}
	return route
}

// blockID tells blocks apart. Nested ones have a copy of the state of the block
// around them; all sites share one state, but have addresses of their own.
type blockID struct{ state, site uintptr }

func blockOf(h httpcaddyfile.Helper) blockID {
	return blockID{reflect.ValueOf(h.BlockState).Pointer(), siteOf(h)}
}

// siteOf identifies the site that a directive stands in, by where its addresses
// lie in memory; 0 means that there is no telling.
func siteOf(h httpcaddyfile.Helper) uintptr {
	addresses := ofSite(h, "Keys")
	if !addresses.IsValid() || addresses.Kind() != reflect.Slice {
		return 0
	}
	return addresses.Pointer()
}

// ofSite is a field of the site's block that a directive stands in. Caddy does
// not export the block; the value is not valid where there is no such field.
func ofSite(h httpcaddyfile.Helper, field string) reflect.Value {
	site := reflect.ValueOf(h).FieldByName("parentBlock")
	if !site.IsValid() || site.Kind() != reflect.Struct {
		return reflect.Value{}
	}
	return site.FieldByName(field)
}

// onlyOne reports whether there is one serialize directive in the site, whatever
// block of the site it stands in. It is false where there is no telling.
func onlyOne(h httpcaddyfile.Helper) bool {
	segments := ofSite(h, "Segments")
	if !segments.IsValid() || segments.Type() != reflect.TypeFor[[]caddyfile.Segment]() {
		return false
	}
	count := 0
	for i := range segments.Len() {
		for j := range segments.Index(i).Len() {
			if segments.Index(i).Index(j).FieldByName("Text").String() == "serialize" {
				count++
			}
		}
	}
	return count == 1
}

// nextGroup takes the next name for a group of routes from Caddy, which gives
// them to groups of two and more.
func nextGroup(h httpcaddyfile.Helper) string {
	values := []httpcaddyfile.ConfigValue{{Value: caddyhttp.Route{}}, {Value: caddyhttp.Route{}}}
	h.GroupRoutes(values)
	return values[0].Value.(caddyhttp.Route).Group
}

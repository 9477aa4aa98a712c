package serialize

import (
	"bytes"
	"encoding/json"
	"fmt"
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

// serializeLine is one serialize directive of a block.
type serializeLine struct {
	at      tokenPosition
	number  int  // in the block, from 0
	between bool // another directive stands between it and the line before
	again   bool // has no matcher, as one before it
	matcher caddy.ModuleMap
	paths   []string // the matcher's, if it has nothing else
	route   caddyhttp.Route
	slots   []caddyhttp.Route // what Caddy got for the line; filled by arrange
}

// addSerializeLine makes a line part of its block, and returns its routes.
func addSerializeLine(h httpcaddyfile.Helper, at tokenPosition, matcher caddy.ModuleMap, route caddyhttp.Route) ([]caddyhttp.Route, error) {
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
	line.between = line.number > 0 && directiveBetween(h, block.lines[line.number-1].at, line.at)
	block.lines = append(block.lines, line)
	order := block.order()
	if dead, by := block.unreachable(order); dead != nil && block.id.site != 0 {
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
func (b *serializeBlock) unreachable(order []candidate) (dead, by *serializeLine) {
	taken := make(map[*serializeLine]int) // how many candidates of a line are out of reach
	for i, c := range order {
		j := slices.IndexFunc(order[:i], func(o candidate) bool {
			return o.line != c.line && o.covers(c) && !(b.written && b.apart(o.line, c.line))
		})
		if j < 0 {
			continue
		}
		if taken[c.line]++; taken[c.line] == len(c.line.slots) {
			return c.line, order[j].line
		}
	}
	return nil, nil
}

// apart reports whether another directive stands between two lines of a route
// block. It may change the request, so that the second line matches after all.
func (b *serializeBlock) apart(first, second *serializeLine) bool {
	for _, line := range b.lines[first.number+1 : second.number+1] {
		if line.between {
			return true
		}
	}
	return false
}

// covers reports whether c surely matches every request that o matches.
func (c candidate) covers(o candidate) bool {
	switch {
	case len(c.line.matcher) == 0 || c.path == "*" || c.path == "/*":
		return true
	case c.path != "" && o.path != "":
		return pathCovers(strings.ToLower(c.path), strings.ToLower(o.path))
	case c.path != "" || o.path != "":
		return false
	}
	for name, condition := range c.line.matcher {
		other, ok := o.line.matcher[name]
		if !ok || !bytes.Equal(unnamed(condition), unnamed(other)) {
			return false
		}
	}
	return true
}

// unnamed is a condition without the name that a regular expression has from its
// matcher, and in the order of its fields.
func unnamed(condition json.RawMessage) []byte {
	var fields map[string]any
	if json.Unmarshal(condition, &fields) != nil {
		return condition
	}
	delete(fields, "name")
	for _, field := range fields {
		if nested, ok := field.(map[string]any); ok {
			delete(nested, "name")
		}
	}
	return caddyconfig.JSON(fields, nil)
}

// pathCovers reports whether a path pattern matches all that another one does,
// as far as that can be seen: not with placeholders, escapes, or wildcards other
// than a * at the ends.
func pathCovers(pattern, other string) bool {
	if pattern == other {
		return true
	}
	if strings.ContainsAny(pattern+other, `{%[?\`) || strings.Contains(strings.Trim(pattern, "*"), "*") || strings.Contains(strings.Trim(other, "*"), "*") {
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

// tokenPosition is where a line begins in a Caddyfile.
type tokenPosition struct {
	file string
	line int
}

func (p tokenPosition) String() string { return fmt.Sprintf("%s:%d", p.file, p.line) }

// directiveBetween reports whether a directive other than serialize stands
// between two lines. Where that cannot be seen, there may be one.
func directiveBetween(h httpcaddyfile.Helper, first, second tokenPosition) bool {
	tokens, ok := siteTokens(h)
	if !ok || first.file != second.file || second.line <= first.line {
		return true
	}
	depth, last := 0, first.line
	for _, t := range tokens {
		if t.File != first.file || t.Line < first.line || t.Line >= second.line {
			continue
		}
		starts := depth == 0 && t.Line > last
		last = max(last, t.Line)
		switch {
		case t.Text == "{":
			depth++
		case t.Text == "}":
			depth--
		case starts && t.Text != "serialize" && !strings.HasPrefix(t.Text, "@"):
			return true
		}
	}
	return false
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

// siteTokens are the tokens of the site that a directive stands in. ok is false
// where there is no telling.
func siteTokens(h httpcaddyfile.Helper) (tokens []caddyfile.Token, ok bool) {
	segments := ofSite(h, "Segments")
	if !segments.IsValid() || segments.Type() != reflect.TypeFor[[]caddyfile.Segment]() {
		return nil, false
	}
	for i := range segments.Len() {
		for j := range segments.Index(i).Len() {
			token := segments.Index(i).Index(j)
			tokens = append(tokens, caddyfile.Token{
				File: token.FieldByName("File").String(),
				Line: int(token.FieldByName("Line").Int()),
				Text: token.FieldByName("Text").String(),
			})
		}
	}
	return tokens, true
}

// onlyOne reports whether there is one serialize directive in the site, whatever
// block of the site it stands in. It is false where there is no telling.
func onlyOne(h httpcaddyfile.Helper) bool {
	count := 0
	tokens, ok := siteTokens(h)
	for _, t := range tokens {
		if t.Text == "serialize" {
			count++
		}
	}
	return ok && count == 1
}

// nextGroup takes the next name for a group of routes from Caddy, which gives
// them to groups of two and more.
func nextGroup(h httpcaddyfile.Helper) string {
	values := []httpcaddyfile.ConfigValue{{Value: caddyhttp.Route{}}, {Value: caddyhttp.Route{}}}
	h.GroupRoutes(values)
	return values[0].Value.(caddyhttp.Route).Group
}

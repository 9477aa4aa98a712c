package lineorder

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Which lines belong together depends on where a directive stands: in which site and
// block, and beside which other directives. A directive does not
// learn that from Caddy. This file finds it out, and says so if it cannot.

// Position is where a line begins in a Caddyfile.
type Position struct {
	file string
	line int
}

// PositionOf is the position of the token that is being parsed.
func PositionOf(h httpcaddyfile.Helper) Position { return Position{h.File(), h.Line()} }

// String is the position as Caddy writes it in errors.
func (p Position) String() string { return fmt.Sprintf("%s:%d", p.file, p.line) }

// directiveBetween reports whether a directive other than serialize stands
// between two serialize lines. If that cannot be seen, there may be one.
func directiveBetween(h httpcaddyfile.Helper, first, second Position) bool {
	tokens, ok := siteTokens(h)
	from := slices.IndexFunc(tokens, first.isDirective)
	if !ok || first == second || from < 0 {
		return true
	}
	length := slices.IndexFunc(tokens[from:], second.isDirective)
	return length < 0 || slices.ContainsFunc(firstWords(tokens[from:from+length]), isOtherDirective)
}

// isDirective reports whether a token is the serialize directive of this line.
func (p Position) isDirective(t caddyfile.Token) bool {
	return t.Text == "serialize" && t.File == p.file && t.Line == p.line
}

func isOtherDirective(word string) bool { return word != "serialize" && !strings.HasPrefix(word, "@") }

// firstWords are the first words of the lines outside nested blocks.
func firstWords(tokens []caddyfile.Token) (words []string) {
	var previous caddyfile.Token
	depth := 0
	for _, t := range tokens {
		switch {
		case t.Text == "{":
			depth++
		case t.Text == "}":
			depth--
		case depth == 0 && (t.Line != previous.Line || t.File != previous.File):
			words = append(words, t.Text)
		}
		previous = t
	}
	return words
}

// inRouteBlock reports whether the directive that is being parsed stands in a
// route block. A directive can learn that only from the function that has
// called it.
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

// blockID identifies a block. Nested blocks have a copy of the state of the
// block around them. All sites share one state, but have separate addresses.
type blockID struct{ state, site uintptr }

func blockOf(h httpcaddyfile.Helper) blockID {
	return blockID{reflect.ValueOf(h.BlockState).Pointer(), siteOf(h)}
}

// siteOf identifies the site that a directive stands in, by the position of its
// addresses in memory; 0 means unknown.
func siteOf(h httpcaddyfile.Helper) uintptr {
	addresses := ofSite(h, "Keys")
	if !addresses.IsValid() || addresses.Kind() != reflect.Slice {
		return 0
	}
	return addresses.Pointer()
}

// ofSite is a field of the site's block that a directive stands in. Caddy does
// not export the block; the value is not valid if there is no such field.
func ofSite(h httpcaddyfile.Helper, field string) reflect.Value {
	site := reflect.ValueOf(h).FieldByName("parentBlock")
	if !site.IsValid() || site.Kind() != reflect.Struct {
		return reflect.Value{}
	}
	return site.FieldByName(field)
}

// siteTokens are the tokens of the site that a directive stands in. ok is false
// if they are unknown.
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

// OnlyOne reports whether there is one serialize directive in the site, whatever
// block of the site it stands in. It is false if that is unknown.
func OnlyOne(h httpcaddyfile.Helper) bool {
	count := 0
	tokens, ok := siteTokens(h)
	for _, t := range tokens {
		if t.Text == "serialize" {
			count++
		}
	}
	return ok && count == 1
}

// nextGroup returns a name for a group of routes that no other group of the
// configuration has. Caddy numbers its groups, but those of named routes separately.
// It leaves out a route if the request has already used another one of its group's
// name.
func nextGroup(h httpcaddyfile.Helper) string {
	values := []httpcaddyfile.ConfigValue{{Value: caddyhttp.Route{}}, {Value: caddyhttp.Route{}}}
	h.GroupRoutes(values)
	name := "serialize_" + values[0].Value.(caddyhttp.Route).Group
	if h.IsNamedRoute() {
		return "named_route_" + name
	}
	return name
}

package lineorder

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
)

// A line that no request can reach is a mistake, and refused. It counts as such only if
// the lines before it surely match all its requests.

// unreachable returns a line that no request can reach, and the line that takes
// its requests. In a route block, another directive between the two may change a
// request, so that the second line matches after all.
func (b *serializeBlock) unreachable(h httpcaddyfile.Helper, order []candidate) (dead, by *serializeLine) {
	taken := make(map[*serializeLine]int) // how many candidates of a line are out of reach
	for i, c := range order {
		j := slices.IndexFunc(order[:i], func(o candidate) bool {
			return o.line != c.line && o.covers(c) && !(b.written && directiveBetween(h, o.line.at, c.line.at))
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

// pathCovers reports whether a path pattern matches all that another one does. It says no
// for placeholders, escapes, and wildcards other than a * at the ends.
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

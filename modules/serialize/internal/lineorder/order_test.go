package lineorder_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	_ "github.com/caddyserver/caddy/v2/modules/standard"
	_ "github.com/orderly-http/caddy-orderly"
)

// Requests meet the lines of a block in this order. Caddy's sorting alone leaves
// a matcher with several paths, or with other conditions, where it was written.
// No line behind it comes before it, however specific.
func TestOrderOfLines(t *testing.T) {
	tests := []struct {
		name  string
		lines string // matchers, one a line, in a site or, behind "route", in a route block
		order string
	}{
		{"longest path first", "/a/* /a/b/* /a /", "/a/b/* /a/* /a /"},
		{"exact before prefix", "/a* /a", "/a /a*"},
		{"no matcher is last", "* /a/*", "/a/* *"},
		{"each path for itself", "/a/* @several /a/b/c/*", "/several /a/b/c/* /a/b/* /a/*"},
		{"each path, with one in between", "/severa @several", "/several /severa /a/b/*"},
		{"one path of several is split off", "/a/b/ @several", "/several /a/b/ /a/b/*"},
		{"several paths that stay together", "@several *", "/several,/a/b/* *"},
		{"conditions first, as written", "/a/b/c/d/* @both /a/b/c/* @get @post /x", "GET:/a/b/c/* GET POST /a/b/c/d/* /a/b/c/* /x"},
		{"conditions between paths", "/a/* @get /a/b/* @post /a/b/c/*", "GET POST /a/b/c/* /a/b/* /a/*"},
		{"one path in two lines", "@several @other /x", "/several /several,/other /a/b/* /x"},
		{"route keeps what is written", "route /a/b/* @get /a/* @several", "/a/b/* GET /a/* /several,/a/b/*"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			order, err := orderOfLines(test.lines)
			if err != nil || order != test.order {
				t.Errorf("requests meet %s, %v; expected %s", order, err, test.order)
			}
		})
	}
}

// A line that no request can reach is refused. The message names its position
// and that of the line that takes its requests.
func TestLineThatNeverApplies(t *testing.T) {
	tests := []struct {
		name     string
		lines    string
		dead, by int // 1 is the first line
	}{
		{"same path", "/a/* /b /a/*", 3, 1},
		{"same path but for case", "/A /a", 2, 1},
		{"same condition", "@get /b @get", 3, 1},
		{"no matcher twice", "* *", 2, 1},
		{"same expression by another name", "@re1 /b @re2", 3, 1},
		{"one condition less", "@get /b @both", 3, 1},
		{"empty matcher", "@any /b", 2, 1},
		{"all requests by a path", "* /*", 1, 2},
		{"each path taken by others", "/several /a/b/* @several", 3, 2},
		{"a longer pattern that matches more", "/a* @suffix /a/x/*", 1, 2},
		{"route behind all", "route * /a", 2, 1},
		{"route behind a shorter path", "route /a/* /b /a/b", 3, 1},
		{"route behind a suffix", "route @suffix /a/x/a", 2, 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			order, err := orderOfLines(test.lines)
			want := fmt.Sprintf("the line at Caddyfile:%d can never apply: the one at Caddyfile:%d ", linesBefore+test.dead, linesBefore+test.by)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("adapted to %q, %v; expected %q", order, err, want)
			}
		})
	}
}

// In a route block, a directive between two lines may change the request. Bug: a
// directive from a snippet was not found, because its tokens have the lines of the
// snippet, and the configuration was refused.
func TestLinesApart(t *testing.T) {
	tests := []struct {
		name, between string
		refused       bool
	}{
		{"rewrite", "uri strip_prefix /v1", false},
		{"imported rewrite", "import strip", false},
		{"block", "handle /x {\n\t\trespond x\n\t}", false},
		{"nothing", "", true},
		{"matcher", "@m {\n\t\tpath /m\n\t}", true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			order, err := adaptedOrder("(strip) {\n\turi strip_prefix /v1\n}\n:80 {\nroute {\n\tserialize /api/* {\n\t\tprefix a\n\t}\n\t" + test.between + "\n\tserialize /api/* {\n\t\tprefix b\n\t}\n}\n}\n")
			if refused := err != nil && strings.Contains(err.Error(), "can never apply"); refused != test.refused || !refused && order != "/api/* /api/*" {
				t.Errorf("adapted to %q, %v", order, err)
			}
		})
	}
}

const (
	linesHead = `:80 {
	@several path /several /a/b/*
	@suffix path */a*
	@other path /several /other
	@re1 path_regexp ^/a/[bc]$
	@re2 path_regexp ^/a/[bc]$
	@any {
	}
	@get method GET
	@post method POST
	@both {
		path /a/b/c/*
		method GET
	}
`
	linesBefore = 15
)

// orderOfLines adapts a site with these lines, and returns the matchers of its
// routes in order.
func orderOfLines(lines string) (string, error) {
	lines, inRoute := strings.CutPrefix(lines, "route ")
	block := "handle"
	if inRoute {
		block = "route"
	}
	var text strings.Builder
	text.WriteString(linesHead + block + " {\n")
	for line := range strings.FieldsSeq(lines) {
		text.WriteString("\tserialize " + line + " off\n")
	}
	text.WriteString("}\n}\n")
	return adaptedOrder(text.String())
}

func adaptedOrder(text string) (string, error) {
	adapted, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
	if err != nil {
		return "", err
	}
	var config any
	if err := json.Unmarshal(adapted, &config); err != nil {
		return "", err
	}
	return strings.Join(serializeMatchers(config), " "), nil
}

// serializeMatchers finds the routes of serialize in a configuration.
func serializeMatchers(node any) (found []string) {
	switch node := node.(type) {
	case []any:
		for _, child := range node {
			found = append(found, serializeMatchers(child)...)
		}
	case map[string]any:
		if handlers, ok := node["handle"].([]any); ok && handlers[0].(map[string]any)["handler"] == "serialize" {
			return []string{matcherText(node["match"])}
		}
		for _, child := range node {
			found = append(found, serializeMatchers(child)...)
		}
	}
	return found
}

func matcherText(match any) string {
	text, _ := json.Marshal(match)
	var sets []struct {
		Path   caddyhttp.MatchPath
		Method caddyhttp.MatchMethod
	}
	if err := json.Unmarshal(text, &sets); err != nil || len(sets) == 0 {
		return "*"
	}
	paths, methods := strings.Join(sets[0].Path, ","), strings.Join(sets[0].Method, ",")
	if methods != "" && paths != "" {
		return methods + ":" + paths
	}
	return methods + paths
}

package recipes

import (
	"encoding/json"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/modules/once"
	"github.com/orderly-http/caddy-orderly/modules/serialize"
	"github.com/orderly-http/caddy-orderly/modules/uniqueids"
)

const docs = "../../docs"

// pages are the documents, by their paths from docs.
func pages(t *testing.T) (names []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", "../*.md"} {
		found, err := filepath.Glob(filepath.Join(docs, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("there is no %s, error %v", pattern, err)
		}
		for _, path := range found {
			name, err := filepath.Rel(docs, path)
			check(t, err)
			names = append(names, name)
		}
	}
	return names
}

// Every Caddyfile in the documentation is one that Caddy takes, or lines of a site.
func TestDocumentedCaddyfilesAreRight(t *testing.T) {
	t.Parallel()
	fence := regexp.MustCompile("(?ms)^```caddyfile\n(.*?)^```")
	lines := regexp.MustCompile("^(once|serialize|unique_ids) ")
	for _, name := range pages(t) {
		for i, match := range fence.FindAllStringSubmatch(readFile(t, docs, name), -1) {
			file := filepath.Join(t.TempDir(), "Caddyfile")
			text := match[1]
			if lines.MatchString(text) {
				text = "example.com {\n\t" + strings.TrimSuffix(strings.ReplaceAll(text, "\n", "\n\t"), "\t") + "}\n"
			}
			testcaddy.WriteFile(t, file, text)
			if _, errs, code := testcaddy.Output(t, "adapt", "--config", file, "--adapter", "caddyfile"); code != 0 || strings.Contains(errs, "not formatted") {
				t.Errorf("%s, Caddyfile %d: %s\n%s", name, i+1, errs, match[1])
			}
		}
	}
}

// Every JSON in the documentation can be read, and that of a handler is one.
func TestDocumentedJSONIsRight(t *testing.T) {
	t.Parallel()
	fence := regexp.MustCompile("(?ms)^```json\n(.*?)^```")
	for _, name := range pages(t) {
		for _, match := range fence.FindAllStringSubmatch(readFile(t, docs, name), -1) {
			var object map[string]any
			if err := json.Unmarshal([]byte(match[1]), &object); err != nil {
				t.Errorf("%s: %v\n%s", name, err, match[1])
			}
			if object["handler"] != "serialize" {
				continue
			}
			if err := json.Unmarshal([]byte(match[1]), new(serialize.Handler)); err != nil {
				t.Errorf("%s: %v\n%s", name, err, match[1])
			}
		}
	}
}

// Every setting of the handlers is documented.
func TestSettingsInJSONAreDocumented(t *testing.T) {
	t.Parallel()
	text := readFile(t, docs, "directives.md")
	for _, handler := range []any{once.Handler{}, serialize.Handler{}, uniqueids.Handler{}} {
		typ := reflect.TypeOf(handler)
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if name != "" && !strings.Contains(text, "`"+name+"`") && name != "off" {
				t.Errorf("directives.md does not mention %s", name)
			}
		}
	}
}

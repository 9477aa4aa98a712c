package recipes

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
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
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, name)
		}
	}
	return names
}

func document(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(docs, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Every Caddyfile in the documentation is one that Caddy takes.
func TestDocumentedCaddyfilesAreRight(t *testing.T) {
	t.Parallel()
	fence := regexp.MustCompile("(?ms)^```caddyfile\n(.*?)^```")
	for _, name := range pages(t) {
		for i, match := range fence.FindAllStringSubmatch(document(t, name), -1) {
			file := filepath.Join(t.TempDir(), "Caddyfile")
			testcaddy.WriteFile(t, file, match[1])
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
		for _, match := range fence.FindAllStringSubmatch(document(t, name), -1) {
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

// Every setting of the handlers is documented, and every link leads somewhere.
func TestDocumentationIsWhole(t *testing.T) {
	t.Parallel()
	text := document(t, "directives.md")
	for _, handler := range []any{serialize.Handler{}, uniqueids.Handler{}} {
		typ := reflect.TypeOf(handler)
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if name != "" && !strings.Contains(text, "`"+name+"`") && name != "off" {
				t.Errorf("directives.md does not mention %s", name)
			}
		}
	}
	link := regexp.MustCompile(`\]\(([^)\s]+)\)|src="([^"]+)"`)
	for _, name := range pages(t) {
		for _, match := range link.FindAllStringSubmatch(document(t, name), -1) {
			checkLink(t, name, match[1]+match[2])
		}
	}
}

func checkLink(t *testing.T, from, link string) {
	t.Helper()
	file, anchor, _ := strings.Cut(link, "#")
	if strings.Contains(link, "://") {
		return
	}
	if file == "" {
		file = filepath.Base(from)
	}
	file = filepath.Join(filepath.Dir(from), file)
	text, err := os.ReadFile(filepath.Join(docs, file))
	if info, statErr := os.Stat(filepath.Join(docs, file)); statErr == nil && info.IsDir() {
		return
	}
	if err != nil {
		t.Errorf("%s: the link %s leads nowhere", from, link)
		return
	}
	if anchor != "" && !hasAnchor(string(text), anchor) {
		t.Errorf("%s: there is no heading for the link %s", from, link)
	}
}

// hasAnchor reports whether a document has a heading of that name.
func hasAnchor(text, anchor string) bool {
	dropped := regexp.MustCompile("[^a-z0-9 _-]")
	for line := range strings.Lines(text) {
		heading, ok := strings.CutPrefix(strings.TrimSpace(strings.TrimLeft(line, "#")), "")
		if !ok || !strings.HasPrefix(line, "#") {
			continue
		}
		if strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(heading), ""), " ", "-") == anchor {
			return true
		}
	}
	return false
}

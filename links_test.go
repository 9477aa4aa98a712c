package orderly

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	fence     = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	link      = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading   = regexp.MustCompile(`(?m)^#+ (.+)$`)
	inAnchors = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// Every link of the documents leads to a file, and to a heading, that is there. Every page of
// the book stands in its table of contents.
func TestLinks(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	if err != nil || len(pages) < 10 {
		t.Fatalf("the book has %d pages, error %v", len(pages), err)
	}
	more := []string{"README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", ".ci/release/README.md", "bench/figures/README.md", "serializer/storetest/README.md"}
	listed := map[string]bool{filepath.Join("docs", "README.md"): true}
	for _, page := range append(pages, more...) {
		for _, match := range link.FindAllStringSubmatch(fence.ReplaceAllString(textOf(t, page), ""), -1) {
			target, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			target = cmp.Or(target, filepath.Base(page))
			target = filepath.Join(filepath.Dir(page), target)
			if page == filepath.Join("docs", "README.md") {
				listed[target] = true
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %s: %v", page, match[1], err)
			} else if anchor != "" && !anchors(textOf(t, target))[anchor] {
				t.Errorf("%s: %s: there is no such heading", page, match[1])
			}
		}
	}
	for _, page := range pages {
		if !listed[page] {
			t.Errorf("docs/README.md does not list %s", page)
		}
	}
}

// anchors are those that GitHub gives to the headings of a page.
func anchors(text string) map[string]bool {
	found := make(map[string]bool)
	for _, match := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		plain := link.ReplaceAllString(strings.ToLower(match[1]), "")
		found[strings.ReplaceAll(inAnchors.ReplaceAllString(plain, ""), " ", "-")] = true
	}
	return found
}

package report

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

const blockBegins = "<!-- figures: "

// block is the text of a document between the lines "<!-- figures: name -->" and
// "<!-- end -->".
var block = regexp.MustCompile(`(?s)` + blockBegins + `(\w+) -->\n.*?<!-- end -->`)

// Refresh replaces the blocks of a document. Blocks without a text stay.
func Refresh(path string, texts map[string]string) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("refreshing the tables: %w", err)
	}
	if text := string(old); strings.Count(text, blockBegins) != len(block.FindAllString(text, -1)) {
		return fmt.Errorf("refreshing the tables of %s: a block has no end", path)
	}
	text := block.ReplaceAllStringFunc(string(old), func(whole string) string {
		name := block.FindStringSubmatch(whole)[1]
		if tables, ok := texts[name]; ok {
			return blockBegins + name + " -->\n\n" + tables + "\n<!-- end -->"
		}
		return whole
	})
	return os.WriteFile(path, []byte(text), 0o644)
}

package enginetest_test

import (
	"os"
	"strings"
	"testing"
)

// The page in the book shows nothing but what is compiled here.
func TestPageShowsTheExample(t *testing.T) {
	page, err := os.ReadFile("../../docs/writing-an-engine.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```go\n")[1:]
	if len(blocks) == 0 {
		t.Fatal("the page shows no code")
	}
	for _, block := range blocks {
		code, _, closed := strings.Cut(block, "\n```")
		if !closed || !strings.Contains(string(example), code+"\n") {
			t.Errorf("not in example_test.go:\n%s", code)
		}
	}
}

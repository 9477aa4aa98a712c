package storetest_test

import (
	"os"
	"strings"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/storetest"
)

func TestMain(m *testing.M) {
	wait.InParallel()
	os.Exit(m.Run())
}

// The store of the example is right.
func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Options{}, func(testing.TB, int) []serializer.Store {
		db := NewDatabase()
		return []serializer.Store{Open(db, "first"), Open(db, "second")}
	})
}

// The document shows the whole example.
func TestDocumentShowsTheExample(t *testing.T) {
	document, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("example_store_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(example), "\n)\n\n") // behind the imports
	if !strings.Contains(string(document), "```go\n"+code+"```\n") {
		t.Error("README.md does not show example_store_test.go as it is")
	}
	if lines := strings.Count(string(document), "\n"); lines > 150 {
		t.Errorf("README.md has %d lines, more than 150", lines)
	}
}

package orderly

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// Caddy's site prints the comment of a field under its name in JSON, so what
// begins with the name in Go reads wrong there.
func TestCommentsOfFields(t *testing.T) {
	files, err := filepath.Glob("modules/*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	fields := 0
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			field, ok := n.(*ast.Field)
			if !ok || field.Tag == nil || !strings.Contains(field.Tag.Value, "json:") || field.Doc == nil {
				return true
			}
			fields++
			comment := field.Doc.Text()
			for _, name := range field.Names {
				if strings.HasPrefix(comment, name.Name+" ") {
					t.Errorf("%s: the comment of %s begins with its name in Go: %s", file, name, comment)
				}
			}
			return true
		})
	}
	if fields < 20 {
		t.Errorf("%d fields with a comment; expected those of all modules", fields)
	}
}

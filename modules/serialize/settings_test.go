package serialize

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// The reference in the documents has each setting with its values and its default, in the
// order of the table, and no other.
func TestSettingsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/directives.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| \\[`(\\w+)`\\]\\(#(\\w+)\\) ?(.*?) \\| (.*?) \\| .+ \\|$").
		FindAllStringSubmatch(strings.ReplaceAll(string(text), `\|`, "¦"), -1)
	if len(rows) != len(settings) {
		t.Fatalf("docs/directives.md has %d settings; there are %d", len(rows), len(settings))
	}
	plain := strings.NewReplacer("`", "", "¦", "|")
	for i, s := range settings {
		name, anchor, syntax, usual := rows[i][1], rows[i][2], plain.Replace(rows[i][3]), plain.Replace(rows[i][4])
		if want := plain.Replace(s.usual); name != s.name || anchor != s.name || syntax != s.syntax || usual != want {
			t.Errorf("docs/directives.md has %s %s with the default %s; expected %s %s with %s", name, syntax, usual, s.name, s.syntax, want)
		}
		if !strings.Contains(string(text), "\n### "+s.name+"\n") {
			t.Errorf("docs/directives.md has no section about %s", s.name)
		}
	}
}

// Each setting is a JSON field, whose comment says its default.
func TestFieldsAreDocumented(t *testing.T) {
	comments := fieldComments(t, "handler.go", "Handler")
	typ := reflect.TypeFor[Handler]()
	documented := make(map[string]bool)
	for i := range typ.NumField() {
		field := typ.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" {
			continue
		}
		documented[name] = true
		if comment := comments[field.Name]; !strings.Contains(strings.Join(strings.Fields(comment), " "), "Default: ") {
			t.Errorf("the comment of %s does not say its default: %q", field.Name, comment)
		}
	}
	for _, s := range settings {
		if !documented[s.name] {
			t.Errorf("there is no JSON field %s", s.name)
		}
	}
}

// fieldComments are the comments of a struct's fields, by their names.
func fieldComments(t *testing.T, file, name string) map[string]string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	comments := make(map[string]string)
	ast.Inspect(parsed, func(node ast.Node) bool {
		spec, ok := node.(*ast.TypeSpec)
		if !ok || spec.Name.Name != name {
			return true
		}
		for _, field := range spec.Type.(*ast.StructType).Fields.List {
			for _, ident := range field.Names {
				comments[ident.Name] = field.Doc.Text()
			}
		}
		return false
	})
	return comments
}

package orderly

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// Caddy's site shows each module by the comment of its type, and each setting by the comment
// of its field under its name in JSON. None may be missing, or begin with the field's name in
// Go, and each setting says its default.
func TestModuleDocumentation(t *testing.T) {
	modules := 0
	engines := engineFolders(t)
	for _, folder := range append([]string{"modules/once", "modules/serialize", "modules/uniqueids", "modules/internal/engines", "modules/internal/enginesettings"}, engines...) {
		files, err := filepath.Glob(folder + "/*.go")
		must(t, err)
		docs, isModule := make(map[string]string), make(map[string]bool)
		for _, file := range files {
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
			must(t, err)
			ast.Inspect(parsed, func(node ast.Node) bool {
				switch n := node.(type) {
				case *ast.FuncDecl:
					if n.Name.Name == "CaddyModule" && !strings.HasSuffix(file, "_test.go") {
						isModule[receiver(n)] = true
					}
				case *ast.GenDecl:
					for _, spec := range n.Specs {
						typ, ok := spec.(*ast.TypeSpec)
						if !ok {
							continue
						}
						docs[typ.Name.Name] = n.Doc.Text() + typ.Doc.Text()
						if fields, ok := typ.Type.(*ast.StructType); ok {
							for _, field := range fields.Fields.List {
								checkField(t, file, field)
							}
						}
					}
				}
				return true
			})
		}
		for name := range isModule {
			if modules++; docs[name] == "" {
				t.Errorf("%s: %s has no comment", folder, name)
			}
		}
	}
	if modules != 7+len(engines) {
		t.Errorf("there are %d modules", modules)
	}
}

// engineFolders are those of the engines that are Go modules of their own.
func engineFolders(t *testing.T) (folders []string) {
	t.Helper()
	files, err := filepath.Glob("modules/*/go.mod")
	if err != nil || len(files) == 0 {
		t.Fatal("there are no modules of engines", err)
	}
	for _, file := range files {
		folders = append(folders, path.Dir(filepath.ToSlash(file)))
	}
	return folders
}

func receiver(method *ast.FuncDecl) string {
	switch typ := method.Recv.List[0].Type.(type) {
	case *ast.StarExpr:
		return typ.X.(*ast.Ident).Name
	case *ast.Ident:
		return typ.Name
	}
	return ""
}

// checkField checks the comment of a field that is a setting.
func checkField(t *testing.T, file string, field *ast.Field) {
	t.Helper()
	if field.Tag == nil || strings.HasSuffix(file, "_test.go") {
		return
	}
	key, _, _ := strings.Cut(reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get("json"), ",")
	doc := strings.Join(strings.Fields(field.Doc.Text()), " ")
	saysDefault := strings.Contains(doc, "Default: ") || strings.Contains(strings.ToLower(doc), "required.")
	if key != "" && key != "-" && (!saysDefault || !strings.HasSuffix(doc, ".") || strings.HasPrefix(doc, field.Names[0].Name+" ")) {
		t.Errorf("%s: the comment of %s does not end with its default, or begins with the name in Go: %q", file, key, doc)
	}
}

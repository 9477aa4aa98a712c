package orderly

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

// Caddy's site shows each module by the comment of its type, and each setting
// by the comment of its field under its name in JSON. None may be missing, or begin with
// the field's name in Go. To read them as users do:
//
//	go test -run TestModuleDocumentation -v .
func TestModuleDocumentation(t *testing.T) {
	registered := slices.DeleteFunc(caddy.Modules(), func(id string) bool {
		info, err := caddy.GetModule(id)
		return err != nil || !strings.Contains(fmt.Sprintf("%T", info.New()), "serialize.") && !strings.Contains(fmt.Sprintf("%T", info.New()), "uniqueids.")
	})
	folders := map[string]string{"http.handlers.unique_ids": "modules/uniqueids"}
	for _, folder := range engineFolders(t) { // other Go modules, so nothing is registered here
		id := "http.serialize.engines." + path.Base(folder)
		folders[id] = folder
		registered = append(registered, id)
	}
	for _, id := range registered {
		folder := cmp.Or(folders[id], "modules/serialize")
		p := parsePackage(t, folder)
		name, found := p.modules[id]
		if !found {
			t.Errorf("%s has no module %s", folder, id)
			continue
		}
		t.Logf("%s\n\n%s", id, p.page(t, name, ""))
	}
	if len(registered) < 7 {
		t.Errorf("registered are %v; expected the modules of the two handlers", registered)
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

// documentedPackage is what the documentation of modules is made of.
type documentedPackage struct {
	modules map[string]string // names of types by module ID
	structs map[string]*ast.StructType
	docs    map[string]string // comments of types
}

func parsePackage(t *testing.T, folder string) *documentedPackage {
	t.Helper()
	files, err := filepath.Glob(folder + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	p := &documentedPackage{make(map[string]string), make(map[string]*ast.StructType), make(map[string]string)}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			p.add(decl)
		}
	}
	return p
}

var moduleID = regexp.MustCompile(`^"[a-z_]+(\.[a-z_]+)+"$`)

func (p *documentedPackage) add(decl ast.Decl) {
	if method, ok := decl.(*ast.FuncDecl); ok && method.Name.Name == "CaddyModule" {
		ast.Inspect(method.Body, func(n ast.Node) bool {
			if text, ok := n.(*ast.BasicLit); ok && moduleID.MatchString(text.Value) {
				p.modules[strings.Trim(text.Value, `"`)] = typeName(method.Recv.List[0].Type)
			}
			return true
		})
	}
	types, ok := decl.(*ast.GenDecl)
	if !ok {
		return
	}
	for _, spec := range types.Specs {
		typ, ok := spec.(*ast.TypeSpec)
		if !ok {
			continue
		}
		p.docs[typ.Name.Name] = typ.Doc.Text() + types.Doc.Text()
		if s, ok := typ.Type.(*ast.StructType); ok {
			p.structs[typ.Name.Name] = s
		}
	}
}

// typeName is the name of T, *T, []T or T[P] if T is of the same package.
func typeName(expr ast.Expr) string {
	switch e := expr.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.ArrayType:
		return typeName(e.Elt)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// page is the documentation of a type and of its fields, indented.
func (p *documentedPackage) page(t *testing.T, name, indent string) string {
	t.Helper()
	var page strings.Builder
	write := func(indent, text string) {
		for line := range strings.Lines(text) {
			page.WriteString(indent + line)
		}
		page.WriteString("\n")
	}
	if p.docs[name] == "" {
		t.Errorf("%s has no comment", name)
	}
	write(indent, p.docs[name])
	for _, field := range p.structs[name].Fields.List {
		if field.Tag == nil {
			continue
		}
		key, _, _ := strings.Cut(reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get("json"), ",")
		if key == "" || key == "-" {
			continue
		}
		doc := field.Doc.Text()
		if !strings.HasSuffix(doc, ".\n") || strings.HasPrefix(doc, field.Names[0].Name+" ") {
			t.Errorf("%s: the comment of %s is no sentence, or begins with the name in Go: %q", name, key, doc)
		}
		write(indent, key)
		write(indent+"    ", doc)
		if inner := typeName(field.Type); p.structs[inner] != nil {
			page.WriteString(p.page(t, inner, indent+"    "))
		}
	}
	return page.String()
}

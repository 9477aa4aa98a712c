package orderly

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// guarded are the names of a type that need its lock. These are the fields below its
// mutex mu, up to an empty line, and the methods whose names end in Locked.
type guarded map[string]bool

// unshared are methods that need no lock, because only one goroutine knows the value when
// they are called, by their packages.
var unshared = map[string][]string{
	"modules/serialize":                   {"serve"},
	"modules/serialize/internal/heldbody": {"IsEmpty", "InFile", "ReadMemory", "ReadFile"}, // before the ticket
	"modules/serialize/internal/response": {"open"},
	"modules/uniqueids":                   {"adoptValue"},
}

// A method that needs the lock of its type takes it, or its name ends in Locked. A method
// of that name never takes it.
func TestLocks(t *testing.T) {
	methods := 0
	for _, pattern := range []string{"internal/*", "serializer", "serializer/*", "uniqueid", "modules/*", "modules/serialize/internal/*", "bench/internal/*"} {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range dirs {
			methods += checkLocks(t, dir)
		}
	}
	if methods < 100 {
		t.Errorf("%d methods with a lock; expected those of all libraries", methods)
	}
}

// checkLocks checks a package, and returns how many methods need or take a lock.
func checkLocks(t *testing.T, dir string) (count int) {
	files, fset := parseFiles(t, dir)
	types := guardedTypes(fset, files)
	for _, file := range files {
		for _, decl := range file.Decls {
			method, ok := decl.(*ast.FuncDecl)
			if !ok || method.Recv == nil || len(method.Recv.List[0].Names) == 0 {
				continue
			}
			needs, takes := usesLock(method, types[typeName(method.Recv.List[0].Type)])
			locked := strings.HasSuffix(method.Name.Name, "Locked")
			switch {
			case takes && locked:
				t.Errorf("%s: %s takes the lock that its name says it needs", fset.Position(method.Pos()), method.Name)
			case needs != "" && !takes && !locked && !slices.Contains(unshared[dir], method.Name.Name):
				t.Errorf("%s: %s uses %s without the lock", fset.Position(method.Pos()), method.Name, needs)
			}
			if takes || locked {
				count++
			}
		}
	}
	return count
}

func parseFiles(t *testing.T, dir string) (files []*ast.File, fset *token.FileSet) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	fset = token.NewFileSet()
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files, fset
}

// guardedTypes returns what needs a lock in each type that has one, or that embeds a type
// that has one.
func guardedTypes(fset *token.FileSet, files []*ast.File) map[string]guarded {
	types, embeds := make(map[string]guarded), make(map[string][]string)
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if s, ok := spec.Type.(*ast.StructType); ok {
				fields, embedded := guardedFields(fset, s)
				if fields != nil && types[spec.Name.Name] == nil {
					types[spec.Name.Name] = make(guarded)
				}
				maps.Copy(types[spec.Name.Name], fields)
				embeds[spec.Name.Name] = embedded
			}
			return true
		})
	}
	for _, file := range files {
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if ok && f.Recv != nil && strings.HasSuffix(f.Name.Name, "Locked") && types[typeName(f.Recv.List[0].Type)] != nil {
				types[typeName(f.Recv.List[0].Type)][f.Name.Name] = true
			}
		}
	}
	for name, embedded := range embeds {
		for _, other := range embedded {
			if types[name] == nil && types[other] != nil {
				types[name] = types[other]
			}
		}
	}
	return types
}

// guardedFields returns the fields below the mutex mu, and the embedded types.
func guardedFields(fset *token.FileSet, s *ast.StructType) (fields guarded, embedded []string) {
	last := 0
	for _, field := range s.Fields.List {
		line := fset.Position(field.Pos()).Line
		switch {
		case len(field.Names) == 0:
			embedded = append(embedded, typeName(field.Type))
			continue
		case field.Names[0].Name == "mu":
			fields = make(guarded)
		case fields != nil && line == last+1 && !isAtomic(field.Type):
			for _, name := range field.Names {
				fields[name.Name] = true
			}
		default:
			last = 0
			continue
		}
		last = fset.Position(field.End()).Line
	}
	return fields, embedded
}

func isAtomic(e ast.Expr) bool {
	s, ok := e.(*ast.SelectorExpr)
	return ok && typeName(s.X) == "atomic"
}

// usesLock returns what in a method needs the lock of its receiver, and whether the method
// takes it.
func usesLock(method *ast.FuncDecl, of guarded) (needs string, takes bool) {
	if of == nil {
		return "", false
	}
	receiver := method.Recv.List[0].Names[0].Name
	ast.Inspect(method.Body, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		switch x := s.X.(type) {
		case *ast.Ident:
			if x.Name == receiver && of[s.Sel.Name] {
				needs = s.Sel.Name
			}
		case *ast.SelectorExpr:
			takes = takes || x.Sel.Name == "mu" && typeName(x.X) == receiver && strings.HasSuffix(s.Sel.Name, "Lock")
		}
		return true
	})
	return needs, takes
}

package etcd

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// What needs Engine.mu ends in Locked. It is called where the lock is taken, or where the
// caller needs it, too.
func TestLockedCalls(t *testing.T) {
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	calls, fset := 0, token.NewFileSet()
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			called, locks := lockedCalls(f)
			calls += len(called)
			if needs := strings.HasSuffix(f.Name.Name, "Locked"); len(called) > 0 && needs == locks {
				t.Errorf("%s: %s calls %s; it takes the lock: %t", fset.Position(f.Pos()), f.Name, strings.Join(called, ", "), locks)
			}
		}
	}
	if calls < 100 {
		t.Errorf("%d calls; expected those of the engine", calls)
	}
}

// lockedCalls returns the calls in a function that need a lock, and whether it takes one.
func lockedCalls(f *ast.FuncDecl) (called []string, locks bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		name := ""
		switch fun := call.Fun.(type) {
		case *ast.Ident:
			name = fun.Name
		case *ast.SelectorExpr:
			name = fun.Sel.Name
		}
		locks = locks || name == "Lock"
		if strings.HasSuffix(name, "Locked") {
			called = append(called, name)
		}
		return true
	})
	return called, locks
}

// Command cross type-checks packages of the module in the working directory for other
// systems, tests included. It finds what their compilers would: names that are missing
// there, and constants that are too large.
//
//	cross GOOS/GOARCH,... PATTERN...
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	ok := true
	for target := range strings.SplitSeq(os.Args[1], ",") {
		found, err := check(target, os.Args[2:])
		if err != nil {
			found = append(found, err.Error())
		}
		for _, text := range found {
			fmt.Printf("%s: %s\n", target, text)
		}
		ok = ok && len(found) == 0
	}
	if !ok {
		os.Exit(1)
	}
}

// check returns what is wrong in packages for a target. With all dependencies from their
// source, nothing is compiled.
func check(target string, patterns []string) (found []string, err error) {
	system, processor, _ := strings.Cut(target, "/")
	dir, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("finding the module: %w", err)
	}
	loaded, err := packages.Load(&packages.Config{
		Mode:  packages.LoadTypes | packages.NeedDeps | packages.NeedSyntax | packages.NeedModule,
		Tests: true,
		Env:   append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+processor),
		ParseFile: func(set *token.FileSet, name string, text []byte) (*ast.File, error) {
			file, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
			if err == nil && !strings.HasPrefix(name, dir+string(os.PathSeparator)) {
				dropBodies(file)
			}
			return file, err
		},
	}, patterns...)
	if err != nil {
		return nil, fmt.Errorf("loading the packages: %w", err)
	}
	if len(loaded) == 0 {
		return nil, fmt.Errorf("no package is %q", patterns)
	}
	packages.Visit(loaded, nil, func(p *packages.Package) {
		isOurs := p.Module != nil && p.Module.Main || slices.Contains(loaded, p)
		if !isOurs || strings.HasSuffix(p.ID, ".test") { // Go writes the main package of tests
			return
		}
		for _, e := range p.Errors {
			found = append(found, e.Error())
		}
	})
	slices.Sort(found)
	return slices.Compact(found), nil // packages come once more with their tests
}

// dropBodies leaves out what functions of other modules do, which only their own tests check.
func dropBodies(file *ast.File) {
	for _, declaration := range file.Decls {
		if f, ok := declaration.(*ast.FuncDecl); ok {
			f.Body = nil
		}
	}
}

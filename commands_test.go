package orderly

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every test that the documents run exists: each name in its pattern, in one of the
// packages. So does every flag of the package's own.
func TestDocumentedTests(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile("(?:cd ([a-z/]+) && )?go test ([^`#&;\n]+)")
	found := 0
	for _, page := range append(pages, "README.md", "CONTRIBUTING.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range command.FindAllStringSubmatch(string(text), -1) {
			found++
			for _, fault := range faultsOf(parseGoTest(match[1], match[2])) {
				t.Errorf("%s: %s: %s", page, strings.TrimSpace(match[0]), fault)
			}
		}
	}
	if found < 20 {
		t.Errorf("the documents have only %d commands for tests", found)
	}
}

// Every test that the documents name in their text exists.
func TestNamedTests(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, file := range testFiles("...") {
		tests, _ := testsAndFlags(file)
		all = append(all, tests...)
	}
	named := regexp.MustCompile(`\b(?:Test|Benchmark|Fuzz)[A-Z]\w+`)
	for _, page := range append(pages, "README.md") {
		for _, name := range named.FindAllString(textOf(t, page), -1) {
			if !slices.ContainsFunc(all, func(test string) bool { return strings.HasPrefix(test, name) }) {
				t.Errorf("%s: there is no %s", page, name)
			}
		}
	}
}

// goTest is what a command line of go test says.
type goTest struct {
	run      string // a pattern of tests, benchmarks or fuzz tests
	packages []string
	flags    []string // that are not go test's
}

func parseGoTest(dir, line string) (c goTest) {
	args := strings.Fields(strings.ReplaceAll(strings.ReplaceAll(line, `\|`, "|"), "'", ""))
	for i := 0; i < len(args); i++ {
		switch name := args[i]; {
		case name == "-v" || name == "-race":
		case name == "-run" || name == "-fuzz" || name == "-bench":
			i++
			c.run = args[i]
		case name == "-timeout" || name == "-cpu" || name == "-count":
			i++
		case strings.HasPrefix(name, "-"):
			c.flags = append(c.flags, strings.TrimPrefix(name, "-"))
		case strings.HasPrefix(name, "."):
			c.packages = append(c.packages, filepath.Join(dir, name))
		}
	}
	return c
}

func faultsOf(c goTest) (faults []string) {
	var tests, flags []string
	for _, name := range c.packages {
		files := testFiles(name)
		if len(files) == 0 {
			faults = append(faults, "there are no tests in "+name)
		}
		for _, file := range files {
			theirTests, theirFlags := testsAndFlags(file)
			tests, flags = append(tests, theirTests...), append(flags, theirFlags...)
		}
	}
	for part := range strings.SplitSeq(c.run, "|") {
		pattern, err := regexp.Compile(part)
		if err != nil || !slices.ContainsFunc(tests, pattern.MatchString) {
			faults = append(faults, "no test is named "+part)
		}
	}
	for _, name := range c.flags {
		if !slices.Contains(flags, name) {
			faults = append(faults, "there is no flag "+name)
		}
	}
	return faults
}

// testFiles are those of a package, or with ... of all below.
func testFiles(name string) (files []string) {
	parent, all := strings.CutSuffix(name, "...")
	if !all {
		files, _ = filepath.Glob(filepath.Join(name, "*_test.go"))
		return files
	}
	_ = filepath.WalkDir(filepath.Clean(parent), func(file string, _ os.DirEntry, err error) error {
		if strings.HasSuffix(file, "_test.go") {
			files = append(files, file)
		}
		return err
	})
	return files
}

// testsAndFlags are the names of a file's functions, and of the flags that it or a package of
// helpers defines.
func testsAndFlags(file string) (tests, flags []string) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, nil
	}
	ast.Inspect(parsed, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncDecl:
			tests = append(tests, node.Name.Name)
		case *ast.ImportSpec: // helpers of tests have flags, too
			if dir, ours := strings.CutPrefix(strings.Trim(node.Path.Value, `"`), "github.com/orderly-http/caddy-orderly/"); ours && strings.Contains(dir, "internal/test") {
				helpers, _ := filepath.Glob(filepath.Join(dir, "*.go"))
				for _, helper := range helpers {
					_, theirs := testsAndFlags(helper)
					flags = append(flags, theirs...)
				}
			}
		case *ast.CallExpr:
			of, ok := node.Fun.(*ast.SelectorExpr)
			if !ok || len(node.Args) == 0 {
				break
			}
			for _, arg := range node.Args {
				name, isText := arg.(*ast.BasicLit)
				if x, isFlag := of.X.(*ast.Ident); isFlag && x.Name == "flag" && isText && name.Kind == token.STRING {
					flags = append(flags, strings.Trim(name.Value, `"`))
				}
			}
		}
		return true
	})
	return tests, flags
}
